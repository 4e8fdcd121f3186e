"""Facts: every input of `advance` and `advance_machine`."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.values import Attempt, Machine


@dataclass(frozen=True)
class Planned:
    """Analysis and planning are done: the job may be queued."""


@dataclass(frozen=True)
class Waits:
    """The scheduler could not place the job; `why` is the reason."""

    why: str


@dataclass(frozen=True)
class Placed:
    """The scheduler chose machines, one for each rank. `new`: the ids of those that have to be launched.

    `passed_over`: why a backend that the user prefers was not taken; empty if there is none.
    """

    attempt: Attempt
    machines: tuple[Machine, ...]
    why: str
    new: frozenset[str] = frozenset()
    passed_over: str = ""


@dataclass(frozen=True)
class NothingSaved:
    """The machine reached its maximum runtime and nothing was saved: the next attempt would start over."""


@dataclass(frozen=True)
class CancelRequested:
    by: str = "user"


@dataclass(frozen=True)
class ResumeRequested:
    """A user resumes the ended job: from this checkpoint (None: the newest), on this backend (None: its first)."""

    resume_from: str | None = None
    backend: str | None = None
    by: str = "user"


@dataclass(frozen=True)
class CheckpointRequested:
    """The running program is asked to save a checkpoint now."""

    by: str = "user"


@dataclass(frozen=True)
class StopAttempt:
    """The attempt is asked to save and stop, without its job: that is queued again and continues in another one."""

    attempt: str
    why: str
    reason: Reason = Reason.STOPPED


@dataclass(frozen=True)
class InterruptionNoticed:
    """The backend announced that it reclaims an attempt's machine in `seconds`."""

    attempt: str
    seconds: float


@dataclass(frozen=True)
class RunnerStaging:
    attempt: str
    what: str


@dataclass(frozen=True)
class RunnerStarted:
    attempt: str
    rank: int
    pid: int | None


@dataclass(frozen=True)
class RunnerExited:
    """The user's process has ended."""

    attempt: str
    rank: int
    reason: Reason
    code: int | None = None
    signal: int | None = None
    text: str = ""


@dataclass(frozen=True)
class RunnerEnded:
    """The runner is done and its outputs have arrived."""

    attempt: str
    rank: int
    complete: bool = True
    text: str = ""


@dataclass(frozen=True)
class RunnerContacted:
    """Any sign of life of an attempt's runner."""

    attempt: str


@dataclass(frozen=True)
class Tick:
    """Time passed, or something around the job changed: check it again.

    `listening_since`: the server received no messages before that, so earlier silence proves nothing.
    `has_alternative`: another backend has room for the job, if its machine waits too long in a provider's queue.
    """

    listening_since: float = 0.0
    has_alternative: bool = False


RunnerFact = RunnerStaging | RunnerStarted | RunnerExited | RunnerEnded
UserFact = CancelRequested | ResumeRequested | CheckpointRequested
SchedulerFact = Planned | Waits | Placed | NothingSaved
Fact = SchedulerFact | UserFact | RunnerFact | StopAttempt | InterruptionNoticed | RunnerContacted | Tick


@dataclass(frozen=True)
class LaunchSent:
    """The launch call is about to be made; it may take effect until `until`."""

    until: float


@dataclass(frozen=True)
class LaunchAnswered:
    """The launch was answered. `sent_at`: when the call that made the machine was sent (None: the first one)."""

    native_id: str
    sent_at: float | None = None


@dataclass(frozen=True)
class LaunchRefused:
    """The backend refused this call, which certainly made no machine.

    `only_call`: no other call of this launch was ever sent, so none can still take effect.
    """

    why: str
    only_call: bool = True


@dataclass(frozen=True)
class LaunchLost:
    """The launch call got no response: there may be a machine.

    `until`: when it can no longer take effect, if the call itself is over; None: the time announced by LaunchSent.
    """

    why: str
    until: float | None = None


@dataclass(frozen=True)
class FoundNothing:
    """A search by token found no machine. `asked_at`: when it was sent, as a response may be slow (None: just now)."""

    asked_at: float | None = None


@dataclass(frozen=True)
class HostClaimed:
    """A host claimed the machine, and named the provider's id for it."""

    native_id: str


@dataclass(frozen=True)
class HostSeen:
    """The machine's host made contact."""


@dataclass(frozen=True)
class SeenQueued:
    """The machine waits in its provider's own queue; `detail` is the provider's reason."""

    detail: str = ""


@dataclass(frozen=True)
class SeenUp:
    """The backend lists the machine as starting or running. `started_at`: since when, if the provider says so."""

    started_at: float | None = None


@dataclass(frozen=True)
class SeenHalted:
    """The backend lists the machine, but the agent's host process on it has stopped."""

    started_at: float | None = None


@dataclass(frozen=True)
class SeenGone:
    """The backend no longer lists the machine.

    `absent_for`: seconds since the observer first missed it, on a monotonic clock (None: since the first such fact, on
    the wall clock). `started_at`: when it had started, if the provider says so.
    """

    interrupted: bool = False
    detail: str = ""
    absent_for: float | None = None
    started_at: float | None = None


@dataclass(frozen=True)
class DeclaredLost:
    """An operator declares that the machine will never be heard of again, because its provider cannot say so."""

    why: str


@dataclass(frozen=True)
class Withdraw:
    """The machine has stood in its provider's queue for too long: it is withdrawn if it has not started."""

    why: str


@dataclass(frozen=True)
class Withdrawn:
    """The provider cancelled the machine in its queue."""


@dataclass(frozen=True)
class AlreadyStarted:
    """The machine could not be withdrawn, because it has left its provider's queue."""


@dataclass(frozen=True)
class Unwanted:
    """The machine's owner no longer needs it."""

    why: str


MachineFact = (
    LaunchSent
    | LaunchAnswered
    | LaunchRefused
    | LaunchLost
    | FoundNothing
    | HostClaimed
    | HostSeen
    | SeenQueued
    | SeenUp
    | SeenHalted
    | SeenGone
    | DeclaredLost
    | Withdraw
    | Withdrawn
    | AlreadyStarted
    | Unwanted
)
