"""The runner's decisions, as a pure reducer: `step` takes an event and returns the actions that `runner.py` performs.

    staging ──▶ running ──▶ saving ──▶ ended

A stop writes the stop file and sends SIGTERM. SIGKILL follows after the grace period, repeatedly until the process is
gone. The time limit, an expired lease, an interruption notice and the machine's deadline stop the process in the same
way, with another cause in the report. If the machine is about to end, SIGKILL comes early enough to upload what was
saved.

The first cause wins, except that a requested stop replaces a cause after which another attempt would follow. A process
that ended before the first signal ended by itself. One that ends later counts as stopped, whatever its exit code: a
program that finished just then looks the same as one that saved and left, and continuing from its checkpoint is safe.
"""

from __future__ import annotations

import enum
import math
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace

from crucible.agent.clock import Deadline
from crucible.agent.runner.runner_events import (
    AbortStaging,
    Actions,
    AttemptReleased,
    CheckpointRequested,
    DeadlineChanged,
    Event,
    Finish,
    InterruptionNoticed,
    LeaseExpired,
    OutputsStored,
    ProcessEnded,
    ProcessStarted,
    RequestCheckpoint,
    SendMessage,
    SendSignal,
    StagingDone,
    StagingFailed,
    StartFailed,
    StartProcess,
    StartStaging,
    StopRequested,
    StoreOutputs,
    Tick,
    WriteStopFile,
)
from crucible.wire.documents.messages import Cause, MessageKind

KILL_AGAIN_SECONDS = 5.0
SEND_SECONDS, SEND_SHARE = 2.0, 0.25
"""Part of the remaining time that is reserved for uploads: seconds, or a share if that is more."""
MIN_KILL_DELAY = 1.0
SUSPEND_MIN, SUSPEND_MAX, SUSPEND_SHARE = 30.0, 300.0, 0.05
RETRIED = frozenset({Cause.INTERRUPTED, Cause.SUSPENDED})
"""Causes after which the job continues in another attempt."""


class Phase(enum.Enum):
    STAGING = "staging"
    RUNNING = "running"
    SAVING = "saving"
    ENDED = "ended"


@dataclass(frozen=True)
class RunnerState:
    """All times are of the boot-time clock. `stopping`: why the runner ends the process; None until it does.

    `seconds` is the time limit. `starting`: the process is being started. `released`: the control plane wants nothing
    more. `deadline` is the end of the machine's time, `interrupted_at` the end that the provider announced.
    `checkpoint` counts requested checkpoints.
    """

    grace: float
    seconds: float | None
    now: float
    phase: Phase = Phase.STAGING
    starting: bool = False
    started_at: float | None = None
    stopping: Cause | None = None
    kill_at: float | None = None
    released: bool = False
    deadline: Deadline | None = None
    interrupted_at: float | None = None
    checkpoint: int = 0


Step = tuple[RunnerState, Actions]


def begin(
    grace: float, seconds: float | None, now: float, deadline: Deadline | None = None, checkpoint: int = 0
) -> Step:
    """Return the first state and actions. `checkpoint`: how many were requested before; those are not repeated."""
    return RunnerState(max(0.0, grace), seconds, now, deadline=deadline, checkpoint=checkpoint), (StartStaging(),)


def step(state: RunnerState, event: Event) -> Step:
    """Return the state after the event, and the actions, in order. An event that does not fit the phase is ignored."""
    if isinstance(event, Tick):
        return _tick(state if event.now <= state.now else replace(state, now=event.now))
    if isinstance(event, AttemptReleased):
        return _release(state)
    if isinstance(event, DeadlineChanged):
        return _tick(replace(state, deadline=merge_deadlines(event.deadline, state.deadline)))
    if isinstance(event, CheckpointRequested):
        return _checkpoint(state, event.count)
    if isinstance(event, InterruptionNoticed) and state.phase in (Phase.STAGING, Phase.RUNNING):
        return _interrupt(state, event.seconds)
    if state.phase is Phase.STAGING:
        return _staging(state, event)
    if state.phase is Phase.RUNNING:
        return _running(state, event)
    if state.phase is Phase.SAVING and isinstance(event, OutputsStored):
        ended = SendMessage(MessageKind.ENDED, {"complete": event.complete, "text": event.text})
        return replace(state, phase=Phase.ENDED), (ended, Finish())
    return state, ()


def _staging(state: RunnerState, event: Event) -> Step:
    if isinstance(event, ProcessStarted) and state.starting:
        return _process_started(state, event)
    if isinstance(event, StartFailed) and state.starting:
        return _never_ran(state, Cause.STAGING_FAILED, event.text, event.code)
    if isinstance(event, StopRequested):
        return _stop_staging(state, Cause.STOPPED)
    if isinstance(event, LeaseExpired):
        return _stop_staging(state, Cause.FENCED)
    if isinstance(event, StagingDone) and not state.starting:
        return replace(state, starting=True), (StartProcess(),)
    if isinstance(event, StagingFailed) and not state.starting:
        return _never_ran(state, Cause.STAGING_FAILED, event.text)
    return state, ()


def _stop_staging(state: RunnerState, cause: Cause) -> Step:
    if state.starting:
        return replace(state, stopping=_stronger_cause(state.stopping, cause)), ()
    reported = Cause.NOT_STARTED if cause is Cause.STOPPED else cause
    state, actions = _never_ran(state, reported, "stopped before it started")
    return state, (AbortStaging(), *actions)


def _stronger_cause(known: Cause | None, new: Cause) -> Cause:
    return new if known is None or (new is Cause.STOPPED and known in RETRIED) else known


def _never_ran(state: RunnerState, cause: Cause, text: str, code: int | None = None) -> Step:
    if state.released:
        return replace(state, phase=Phase.ENDED), (Finish(deliver=False),)
    exited = _exited_message(cause, code, None, text, None, None)
    return replace(state, phase=Phase.SAVING, starting=False), (exited, StoreOutputs())


def _process_started(state: RunnerState, event: ProcessStarted) -> Step:
    started = SendMessage(MessageKind.STARTED, {"pid": event.pid, "pgid": event.pid, **dict(event.data)})
    state = replace(state, phase=Phase.RUNNING, starting=False, started_at=state.now)
    if state.stopping is None:
        return state, (started,)
    state, actions = _stop(state, state.stopping)
    return state, (started, *actions)


def _running(state: RunnerState, event: Event) -> Step:
    if isinstance(event, ProcessEnded):
        return _process_ended(state, event)
    if isinstance(event, StopRequested):
        return _stop(state, Cause.STOPPED)
    if isinstance(event, LeaseExpired):
        return _stop(state, Cause.FENCED)
    return state, ()


def _stop(state: RunnerState, cause: Cause) -> Step:
    state = replace(state, stopping=_stronger_cause(state.stopping, cause))
    if state.kill_at is not None:
        return state, ()
    kill_at = _kill_at(state)
    state = replace(state, kill_at=kill_at)
    if kill_at <= state.now:
        return _kill(state, (WriteStopFile(),))
    return state, (WriteStopFile(), SendSignal(signal.SIGTERM))


def _kill_at(state: RunnerState) -> float:
    ends = (state.interrupted_at, None if state.deadline is None else state.deadline.at)
    return state.now + kill_delay(state.grace, state.now, ends)


def _interrupt(state: RunnerState, seconds: float) -> Step:
    notice: Actions = ()
    if state.interrupted_at is None and not state.released:
        text = f"the provider will reclaim the machine in {max(0.0, seconds):.0f} seconds"
        notice = (SendMessage(MessageKind.NOTICE, {"seconds": max(0.0, seconds), "text": text}),)
    reclaimed_at = state.now + max(0.0, seconds)
    state = replace(
        state, interrupted_at=reclaimed_at if state.interrupted_at is None else min(state.interrupted_at, reclaimed_at)
    )
    if state.kill_at is not None:
        state = replace(state, kill_at=min(state.kill_at, _kill_at(state)))
    if state.phase is Phase.STAGING:
        state, actions = _stop_staging(state, Cause.INTERRUPTED)
    else:
        state, actions = _stop(state, Cause.INTERRUPTED)
    return state, (*notice, *actions)


def _checkpoint(state: RunnerState, count: int) -> Step:
    """Request a checkpoint, if the program runs and is not being stopped (then it saves one anyway)."""
    if count <= state.checkpoint:
        return state, ()
    runs = state.phase is Phase.RUNNING and state.kill_at is None
    return replace(state, checkpoint=count), (RequestCheckpoint(),) if runs else ()


def _kill(state: RunnerState, before: Actions = ()) -> Step:
    again = replace(state, kill_at=state.now + KILL_AGAIN_SECONDS)
    return again, (*before, SendSignal(signal.SIGKILL))


def _tick(state: RunnerState) -> Step:
    if state.phase is Phase.RUNNING and state.kill_at is not None:
        return _kill(state) if state.now >= state.kill_at else (state, ())
    if state.phase is Phase.RUNNING:
        at, cause = min(_time_limit(state), _suspend_limit(state), key=lambda end: end[0])
        return _stop(state, cause) if state.now >= at else (state, ())
    if state.phase is Phase.STAGING and state.now >= _suspend_limit(state)[0]:
        return _stop_staging(state, Cause.SUSPENDED)
    return state, ()


def _time_limit(state: RunnerState) -> tuple[float, Cause]:
    assert state.started_at is not None
    return (math.inf if state.seconds is None else state.started_at + state.seconds), Cause.TIME_LIMIT


def _suspend_limit(state: RunnerState) -> tuple[float, Cause]:
    at = math.inf if state.deadline is None else suspend_time(state.deadline, state.grace)
    return at, Cause.SUSPENDED


def _process_ended(state: RunnerState, event: ProcessEnded) -> Step:
    if state.released:
        return replace(state, phase=Phase.ENDED), (Finish(deliver=False),)
    cause, text = _exit_cause(state, event)
    exited = _exited_message(cause, event.code, event.signal, text, event.cpu_seconds, event.peak_memory)
    return replace(state, phase=Phase.SAVING), (exited, StoreOutputs())


def _exit_cause(state: RunnerState, event: ProcessEnded) -> tuple[Cause, str]:
    stopping = None if event.by_itself else state.stopping
    # Before the memory check: a worker may have been killed long ago, and these causes are not failures of the job.
    if stopping in RETRIED:
        return stopping, _TEXTS[stopping]
    # Only if the job failed: a worker may have been killed for memory while the job as a whole succeeded.
    if event.oom and event.code != 0:
        return Cause.OUT_OF_MEMORY, "it used more memory than its limit"
    if stopping is Cause.TIME_LIMIT:
        return Cause.TIME_LIMIT, f"it ran longer than its limit of {state.seconds:g} seconds"
    if stopping is not None:
        return stopping, _TEXTS[stopping]
    if event.signal is not None:
        return Cause.SIGNAL, f"ended by {_signal_name(event.signal)}"
    return Cause.EXIT, ""


_TEXTS = {
    Cause.STOPPED: "stopped on request",
    Cause.FENCED: "stopped because the machine was out of contact for longer than its lease",
    Cause.INTERRUPTED: "stopped because the provider reclaims the machine",
    Cause.SUSPENDED: "stopped because the machine's time is nearly over",
}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exited_message(
    cause: Cause,
    code: int | None,
    number: int | None,
    text: str,
    cpu_seconds: float | None,
    peak_memory: int | None,
) -> SendMessage:
    data: dict[str, object] = {"code": code, "signal": number, "cause": cause.value, "text": text}
    return SendMessage(MessageKind.EXITED, {**data, "cpu_seconds": cpu_seconds, "peak_memory": peak_memory})


def _release(state: RunnerState) -> Step:
    """Stop the process, and finish without delivering anything."""
    if state.phase is Phase.ENDED:
        return replace(state, released=True), (Finish(deliver=False),)
    if state.released:
        return state, ()
    state = replace(state, released=True)
    if state.phase is Phase.RUNNING:
        return _stop(state, Cause.STOPPED)
    if state.phase is Phase.STAGING and state.starting:
        return replace(state, stopping=Cause.STOPPED), ()
    abandon: Actions = (AbortStaging(),) if state.phase is Phase.STAGING else ()
    return replace(state, phase=Phase.ENDED), (*abandon, Finish(deliver=False))


def kill_delay(grace: float, now: float, ends: Iterable[float | None]) -> float:
    """Return the seconds between SIGTERM and SIGKILL: the grace period, or less if uploads need the time."""
    known = [at for at in ends if at is not None]
    if not known:
        return grace
    left = min(known) - now
    return min(grace, max(MIN_KILL_DELAY, left - max(SEND_SECONDS, SEND_SHARE * left)))


def suspend_time(deadline: Deadline, grace: float) -> float:
    """Return when to stop the program, so that it can save and upload before the deadline."""
    lead = grace + max(SUSPEND_MIN, min(SUSPEND_MAX, SUSPEND_SHARE * deadline.total))
    # On a machine whose whole time is hardly longer than that, the program gets half of it.
    return deadline.at - min(lead, deadline.total / 2)


def merge_deadlines(new: Deadline | None, known: Deadline | None) -> Deadline | None:
    """Return the new deadline with the larger total: later documents name the time left, not the whole time."""
    if new is None or known is None:
        return new
    return Deadline(new.at, max(new.total, known.total))
