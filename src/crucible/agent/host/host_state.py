"""What a host decides. Pure: `step` takes what happened and says what to do; the shell in `host.py` does it.

A host makes the desired document true: each listed assignment gets one runner, a runner that died gets a
successor that recovers what it left, and what is done and no longer listed is removed.
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
RETRY_MOST = 60.0
REMEMBERED = 4096


@dataclass(frozen=True)
class RunnerStatus:
    """What the host knows of one runner. `retry_at` is set while it is dead and not done."""

    alive: bool
    done: bool = False
    deaths: int = 0
    retry_at: float | None = None


@dataclass(frozen=True)
class HostState:
    """`listed` is None until the first document comes; `finished` are attempts whose folder was removed."""

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
    """The control plane has no more use for this machine (410)."""

    now: float


@dataclass(frozen=True)
class RunnerAdopted:
    """An earlier host left a folder; `alive` says its runner lives, `done` that nothing is left to do."""

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
    """A contact was tried, from `began` until now, and not made."""

    now: float
    began: float


@dataclass(frozen=True)
class Tick:
    now: float


Event = Union[DesiredReceived, MachineReleased, RunnerAdopted, RunnerEnded, ContactMade, ContactLost, Tick]


@dataclass(frozen=True)
class StartRunner:
    assignment: Assignment


@dataclass(frozen=True)
class RecoverRunner:
    """Start a successor for a runner that died in the attempt's folder."""

    attempt: str
    rank: int


@dataclass(frozen=True)
class RemoveAttempt:
    """The attempt is done and settled: its folder goes."""

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
    """The state after the event, and what to do now, in order."""
    state = _note(state, event)
    state, started = _start(state)
    state, recovered = _recover(state)
    state, removed = _remove(state)
    state, ended = _quit(state)
    return state, started + recovered + removed + ended


def _note(state: HostState, event: Event) -> HostState:
    if isinstance(event, DesiredReceived):
        listed = {(a.attempt, a.rank): a for a in event.desired.assignments}
        heard = state.silence.contacted(event.now)
        return replace(state, assignments=listed, released=event.desired.release, silence=heard)
    if isinstance(event, MachineReleased):
        return replace(state, assignments={}, released=True, silence=state.silence.contacted(event.now))
    if isinstance(event, RunnerAdopted):
        retry_at = None if event.alive or event.done else event.now
        state = replace(state, silence=state.silence.tick(event.now))
        return _with(state, (event.attempt, event.rank), RunnerStatus(event.alive, event.done, 0, retry_at))
    if isinstance(event, RunnerEnded):
        return _note_end(state, event)
    if isinstance(event, ContactMade):
        return replace(state, silence=state.silence.contacted(event.now))
    if isinstance(event, ContactLost):
        return replace(state, silence=state.silence.failed(event.now, event.began))
    return replace(state, silence=state.silence.tick(event.now))


def _note_end(state: HostState, event: RunnerEnded) -> HostState:
    key = (event.attempt, event.rank)
    state = replace(state, silence=state.silence.tick(event.now))
    deaths = state.runners.get(key, RunnerStatus(True)).deaths
    if event.done:
        return _with(state, key, RunnerStatus(False, True, deaths))
    # The first successor comes at once; one that dies again and again is given more and more time.
    wait = 0.0 if deaths == 0 else min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(deaths - 1, 10))
    return _with(state, key, RunnerStatus(False, False, deaths + 1, event.now + wait))


def _start(state: HostState) -> Step:
    actions = []
    for key, assignment in (state.assignments or {}).items():
        if key not in state.runners and key not in state.finished:
            state = _with(state, key, RunnerStatus(True))
            actions.append(StartRunner(assignment))
    return state, tuple(actions)


def _recover(state: HostState) -> Step:
    actions = []
    for key, runner in state.runners.items():
        if runner.retry_at is not None and runner.retry_at <= state.silence.last_tick:
            state = _with(state, key, replace(runner, alive=True, retry_at=None))
            actions.append(RecoverRunner(*key))
    return state, tuple(actions)


def _remove(state: HostState) -> Step:
    if state.assignments is None:
        return state, ()
    listed = state.assignments
    gone = [key for key, runner in state.runners.items() if runner.done and key not in listed]
    if not gone:
        return state, ()
    runners = {key: runner for key, runner in state.runners.items() if key not in gone}
    finished = (state.finished + tuple(gone))[-REMEMBERED:]
    return replace(state, runners=runners, finished=finished), tuple(RemoveAttempt(*key) for key in gone)


def _quit(state: HostState) -> Step:
    working = any(not runner.done for runner in state.runners.values())
    if state.quitting or working:
        return state, ()
    if state.released:
        return replace(state, quitting=True), (ExitHost("no work will come"),)
    if state.silence.has_lasted(state.idle_exit_seconds):
        return replace(state, quitting=True), (ExitHost("idle, and nobody answers"),)
    return state, ()


def _with(state: HostState, key: Key, runner: RunnerStatus) -> HostState:
    return replace(state, runners={**state.runners, key: runner})
