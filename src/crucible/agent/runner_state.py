"""What a runner decides, from staging to the end. Pure; the shell in `runner.py` does what `step` says.

    staging ──▶ running ──▶ saving ──▶ ended

A stop writes the stop file and sends TERM; `grace` seconds later KILL follows, again and again until the
process is gone. A time limit and the end of the lease stop in the same way and differ in the cause that is
reported.
"""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass, replace
from typing import Union

from crucible.wire.messages import Cause, Kind

KILL_AGAIN_SECONDS = 5.0


class Phase(enum.Enum):
    STAGING = "staging"
    RUNNING = "running"
    SAVING = "saving"
    ENDED = "ended"


@dataclass(frozen=True)
class RunnerState:
    """`now` and all times are the boot-time clock's. `stopping` is why we end the process, once we do."""

    grace: float
    seconds: float | None
    now: float
    phase: Phase = Phase.STAGING
    spawning: bool = False
    started_at: float | None = None
    stopping: Cause | None = None
    kill_at: float | None = None
    gone: bool = False


@dataclass(frozen=True)
class Staged:
    pass


@dataclass(frozen=True)
class StageFailed:
    text: str


@dataclass(frozen=True)
class Spawned:
    """The user's process runs. `data` is what the STARTED message tells beside the pid."""

    pid: int
    data: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class SpawnFailed:
    """The command could not be executed; `code` is what a shell would say (126, 127)."""

    code: int
    text: str


@dataclass(frozen=True)
class ProcessEnded:
    """`code` or `signal` is set. `oom`: something of the job was killed for want of memory."""

    code: int | None
    signal: int | None
    oom: bool = False
    cpu_seconds: float | None = None
    peak_memory: int | None = None


@dataclass(frozen=True)
class StopWanted:
    pass


@dataclass(frozen=True)
class LeaseEnded:
    pass


@dataclass(frozen=True)
class AttemptGone:
    """The control plane has settled the attempt without us (410): nothing of it is wanted any more."""


@dataclass(frozen=True)
class Tick:
    now: float


@dataclass(frozen=True)
class OutputsStored:
    complete: bool
    text: str = ""


Event = Union[
    Staged,
    StageFailed,
    Spawned,
    SpawnFailed,
    ProcessEnded,
    StopWanted,
    LeaseEnded,
    AttemptGone,
    Tick,
    OutputsStored,
]


@dataclass(frozen=True)
class Stage:
    pass


@dataclass(frozen=True)
class AbandonStage:
    """Stop preparing, and forget the process that would have been started."""


@dataclass(frozen=True)
class Spawn:
    pass


@dataclass(frozen=True)
class Signal:
    """Send it to the whole process group; KILL also to everything else that belongs to the job."""

    number: int


@dataclass(frozen=True)
class WriteStopFile:
    pass


@dataclass(frozen=True)
class Say:
    kind: Kind
    data: dict[str, object]


@dataclass(frozen=True)
class StoreOutputs:
    pass


@dataclass(frozen=True)
class Finish:
    """Leave once everything said is acknowledged; at once when `deliver` is false."""

    deliver: bool = True


Action = Union[Stage, AbandonStage, Spawn, Signal, WriteStopFile, Say, StoreOutputs, Finish]
Actions = tuple[Action, ...]
Step = tuple[RunnerState, Actions]


def begin(grace: float, seconds: float | None, now: float) -> Step:
    return RunnerState(max(0.0, grace), seconds, now), (Stage(),)


def step(state: RunnerState, event: Event) -> Step:
    """The state after the event, and what to do now, in order. An event out of its place changes nothing."""
    if isinstance(event, Tick):
        return _tick(replace(state, now=max(state.now, event.now)))
    if isinstance(event, AttemptGone):
        return _leave(state)
    if state.phase is Phase.STAGING:
        return _staging(state, event)
    if state.phase is Phase.RUNNING:
        return _running(state, event)
    if state.phase is Phase.SAVING and isinstance(event, OutputsStored):
        ended = Say(Kind.ENDED, {"complete": event.complete, "text": event.text})
        return replace(state, phase=Phase.ENDED), (ended, Finish())
    return state, ()


def _staging(state: RunnerState, event: Event) -> Step:
    if isinstance(event, Spawned) and state.spawning:
        return _spawned(state, event)
    if isinstance(event, SpawnFailed) and state.spawning:
        return _never_ran(state, Cause.STAGING_FAILED, event.text, event.code)
    if isinstance(event, (StopWanted, LeaseEnded)):
        return _stop_staging(state, event)
    if isinstance(event, Staged) and not state.spawning:
        return replace(state, spawning=True), (Spawn(),)
    if isinstance(event, StageFailed) and not state.spawning:
        return _never_ran(state, Cause.STAGING_FAILED, event.text)
    return state, ()


def _stop_staging(state: RunnerState, event: Event) -> Step:
    cause = Cause.NOT_STARTED if isinstance(event, StopWanted) else Cause.FENCED
    if not state.spawning:
        state, actions = _never_ran(state, cause, "stopped before it started")
        return state, (AbandonStage(), *actions)
    stopping = Cause.STOPPED if isinstance(event, StopWanted) else Cause.FENCED
    return replace(state, stopping=state.stopping or stopping), ()


def _never_ran(state: RunnerState, cause: Cause, text: str, code: int | None = None) -> Step:
    if state.gone:
        return replace(state, phase=Phase.ENDED), (Finish(deliver=False),)
    exited = _exited(cause, code, None, text, None, None)
    return replace(state, phase=Phase.SAVING, spawning=False), (exited, StoreOutputs())


def _spawned(state: RunnerState, event: Spawned) -> Step:
    started = Say(Kind.STARTED, {"pid": event.pid, "pgid": event.pid, **dict(event.data)})
    state = replace(state, phase=Phase.RUNNING, spawning=False, started_at=state.now)
    if state.stopping is None:
        return state, (started,)
    state, actions = _stop(state, state.stopping)
    return state, (started, *actions)


def _running(state: RunnerState, event: Event) -> Step:
    if isinstance(event, ProcessEnded):
        return _process_ended(state, event)
    if isinstance(event, StopWanted) and state.kill_at is None:
        return _stop(state, Cause.STOPPED)
    if isinstance(event, LeaseEnded) and state.kill_at is None:
        return _stop(state, Cause.FENCED)
    return state, ()


def _stop(state: RunnerState, cause: Cause) -> Step:
    state = replace(state, stopping=cause, kill_at=state.now + state.grace)
    if state.grace <= 0:
        return _kill(state, (WriteStopFile(),))
    return state, (WriteStopFile(), Signal(signal.SIGTERM))


def _kill(state: RunnerState, before: Actions = ()) -> Step:
    again = replace(state, kill_at=state.now + KILL_AGAIN_SECONDS)
    return again, (*before, Signal(signal.SIGKILL))


def _tick(state: RunnerState) -> Step:
    if state.phase is not Phase.RUNNING:
        return state, ()
    if state.kill_at is not None:
        return _kill(state) if state.now >= state.kill_at else (state, ())
    assert state.started_at is not None
    if state.seconds is not None and state.now - state.started_at >= state.seconds:
        return _stop(state, Cause.TIME_LIMIT)
    return state, ()


def _process_ended(state: RunnerState, event: ProcessEnded) -> Step:
    if state.gone:
        return replace(state, phase=Phase.ENDED), (Finish(deliver=False),)
    cause, text = _why(state, event)
    exited = _exited(cause, event.code, event.signal, text, event.cpu_seconds, event.peak_memory)
    return replace(state, phase=Phase.SAVING), (exited, StoreOutputs())


def _why(state: RunnerState, event: ProcessEnded) -> tuple[Cause, str]:
    # A worker killed for memory while the job as a whole succeeded is no reason to call it a failure.
    if event.oom and event.code != 0:
        return Cause.OUT_OF_MEMORY, "it used more memory than its limit"
    if state.stopping is Cause.TIME_LIMIT:
        return Cause.TIME_LIMIT, f"it ran longer than its limit of {state.seconds:g} seconds"
    if state.stopping is Cause.FENCED:
        return Cause.FENCED, "out of contact for longer than the lease allows"
    if state.stopping is not None:
        return state.stopping, "stopped on request"
    if event.signal is not None:
        return Cause.SIGNAL, f"ended by {_name(event.signal)}"
    return Cause.EXIT, ""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exited(
    cause: Cause,
    code: int | None,
    number: int | None,
    text: str,
    cpu_seconds: float | None,
    peak_memory: int | None,
) -> Say:
    data: dict[str, object] = {"code": code, "signal": number, "cause": cause.value, "text": text}
    return Say(Kind.EXITED, {**data, "cpu_seconds": cpu_seconds, "peak_memory": peak_memory})


def _leave(state: RunnerState) -> Step:
    """End what runs, tell nobody."""
    if state.phase is Phase.ENDED:
        return replace(state, gone=True), (Finish(deliver=False),)
    if state.gone:
        return state, ()
    state = replace(state, gone=True)
    if state.phase is Phase.RUNNING:
        return _stop(state, Cause.STOPPED) if state.kill_at is None else (state, ())
    if state.phase is Phase.STAGING and state.spawning:
        return replace(state, stopping=Cause.STOPPED), ()
    abandon: Actions = (AbandonStage(),) if state.phase is Phase.STAGING else ()
    return replace(state, phase=Phase.ENDED), (*abandon, Finish(deliver=False))
