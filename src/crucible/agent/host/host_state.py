"""The host's decisions, as a pure reducer: `step` takes an event and returns the actions that `host.py` performs.

A host makes the desired document true: each assignment in it gets one runner, a runner that died gets a successor that
recovers the attempt, and an attempt that is done and no longer in the document is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Union

from crucible.agent.clock import Silence
from crucible.wire.documents.desired import Assignment, Desired

Key = tuple[str, int]
"""Attempt and rank."""

RETRY_FIRST = 1.0
RETRY_MAX = 60.0
MAX_FINISHED = 4096


@dataclass(frozen=True)
class RunnerStatus:
    """What the host knows about one runner. `retry_at` is set while it is dead and not done."""

    alive: bool
    done: bool = False
    deaths: int = 0
    retry_at: float | None = None


@dataclass(frozen=True)
class HostState:
    """`assignments` is None until the first document arrives; `finished` are attempts whose folder was removed.

    `released`: no more work will come to this machine.
    """

    idle_exit_seconds: float
    silence: Silence
    runners: Mapping[Key, RunnerStatus] = field(default_factory=dict)
    assignments: Mapping[Key, Assignment] | None = None
    released: bool = False
    finished: tuple[Key, ...] = ()
    quitting: bool = False


@dataclass(frozen=True)
class DesiredReceived:
    desired: Desired
    now: float


@dataclass(frozen=True)
class MachineReleased:
    """The control plane no longer wants this machine (410)."""

    now: float


@dataclass(frozen=True)
class RunnerAdopted:
    """A folder of an earlier host was found. `alive`: its runner still runs; `done`: the attempt is complete."""

    attempt: str
    rank: int
    alive: bool
    done: bool
    now: float


@dataclass(frozen=True)
class RunnerEnded:
    attempt: str
    rank: int
    done: bool
    now: float


@dataclass(frozen=True)
class ContactMade:
    now: float


@dataclass(frozen=True)
class ContactLost:
    """A request failed that was open from `began` until `now`."""

    now: float
    began: float


@dataclass(frozen=True)
class Tick:
    now: float


@dataclass(frozen=True)
class FolderLost:
    """The machine's folder was removed or replaced. Each runner notices that itself."""

    now: float


Event = Union[DesiredReceived, MachineReleased, RunnerAdopted, RunnerEnded, ContactMade, ContactLost, Tick, FolderLost]


@dataclass(frozen=True)
class StartRunner:
    assignment: Assignment


@dataclass(frozen=True)
class RecoverRunner:
    """Start a successor for the attempt's runner, which died."""

    attempt: str
    rank: int


@dataclass(frozen=True)
class RemoveAttempt:
    """Remove the folder of an attempt that is done and settled."""

    attempt: str
    rank: int


@dataclass(frozen=True)
class ExitHost:
    why: str


Action = Union[StartRunner, RecoverRunner, RemoveAttempt, ExitHost]
Step = tuple[HostState, tuple[Action, ...]]


def begin(idle_exit_seconds: float, now: float) -> HostState:
    return HostState(idle_exit_seconds, Silence.begin(now))


def step(state: HostState, event: Event) -> Step:
    """Return the state after the event, and the actions to perform now, in order."""
    if isinstance(event, FolderLost):
        return replace(state, quitting=True), (ExitHost("the machine's folder was removed or replaced"),)
    state = _apply(state, event)
    state, started = _start(state)
    state, recovered = _recover(state)
    state, removed = _remove(state)
    state, ended = _quit(state)
    return state, started + recovered + removed + ended


def _apply(state: HostState, event: Event) -> HostState:
    if isinstance(event, DesiredReceived):
        listed = {(a.attempt, a.rank): a for a in event.desired.assignments}
        silence = state.silence.contacted(event.now)
        return replace(state, assignments=listed, released=event.desired.release, silence=silence)
    if isinstance(event, MachineReleased):
        return replace(state, assignments={}, released=True, silence=state.silence.contacted(event.now))
    if isinstance(event, RunnerAdopted):
        retry_at = None if event.alive or event.done else event.now
        state = replace(state, silence=state.silence.tick(event.now))
        return _set_runner(state, (event.attempt, event.rank), RunnerStatus(event.alive, event.done, 0, retry_at))
    if isinstance(event, RunnerEnded):
        return _apply_end(state, event)
    if isinstance(event, ContactMade):
        return replace(state, silence=state.silence.contacted(event.now))
    if isinstance(event, ContactLost):
        return replace(state, silence=state.silence.failed(event.now, event.began))
    return replace(state, silence=state.silence.tick(event.now))


def _apply_end(state: HostState, event: RunnerEnded) -> HostState:
    key = (event.attempt, event.rank)
    state = replace(state, silence=state.silence.tick(event.now))
    deaths = state.runners.get(key, RunnerStatus(True)).deaths
    if event.done:
        return _set_runner(state, key, RunnerStatus(False, True, deaths))
    # The first successor starts at once; after more deaths the wait doubles.
    wait = 0.0 if deaths == 0 else min(RETRY_MAX, RETRY_FIRST * 2.0 ** min(deaths - 1, 10))
    return _set_runner(state, key, RunnerStatus(False, False, deaths + 1, event.now + wait))


def _start(state: HostState) -> Step:
    actions = []
    for key, assignment in (state.assignments or {}).items():
        if key not in state.runners and key not in state.finished:
            state = _set_runner(state, key, RunnerStatus(True))
            actions.append(StartRunner(assignment))
    return state, tuple(actions)


def _recover(state: HostState) -> Step:
    actions = []
    for key, runner in state.runners.items():
        if runner.retry_at is not None and runner.retry_at <= state.silence.last_tick:
            state = _set_runner(state, key, replace(runner, alive=True, retry_at=None))
            actions.append(RecoverRunner(*key))
    return state, tuple(actions)


def _remove(state: HostState) -> Step:
    if state.assignments is None:
        return state, ()
    listed = state.assignments
    finished = [key for key, runner in state.runners.items() if runner.done and key not in listed]
    if not finished:
        return state, ()
    runners = {key: runner for key, runner in state.runners.items() if key not in finished}
    remembered = (state.finished + tuple(finished))[-MAX_FINISHED:]
    return replace(state, runners=runners, finished=remembered), tuple(RemoveAttempt(*key) for key in finished)


def _quit(state: HostState) -> Step:
    working = any(not runner.done for runner in state.runners.values())
    if state.quitting or working:
        return state, ()
    if state.released:
        return replace(state, quitting=True), (ExitHost("the machine was released"),)
    if state.silence.has_lasted(state.idle_exit_seconds):
        return replace(state, quitting=True), (ExitHost("idle, and the control plane does not respond"),)
    return state, ()


def _set_runner(state: HostState, key: Key, runner: RunnerStatus) -> HostState:
    return replace(state, runners={**state.runners, key: runner})
