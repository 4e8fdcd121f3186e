"""The words of a runner's reducer: what happens to an attempt (events), and what is to be done (actions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from crucible.agent.clock import Deadline
from crucible.wire.documents.messages import MessageKind


@dataclass(frozen=True)
class StagingDone:
    pass


@dataclass(frozen=True)
class StagingFailed:
    text: str


@dataclass(frozen=True)
class ProcessStarted:
    """The user's process runs. `data` is what the STARTED message tells beside the pid."""

    pid: int
    data: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class StartFailed:
    """The command could not be executed; `code` is what a shell would say (126, 127)."""

    code: int
    text: str


@dataclass(frozen=True)
class ProcessEnded:
    """`code` or `signal` is set. `oom`: something of the job was killed for want of memory.

    `by_itself`: it had ended before the first signal was sent to it.
    """

    code: int | None
    signal: int | None
    oom: bool = False
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    by_itself: bool = False


@dataclass(frozen=True)
class StopRequested:
    pass


@dataclass(frozen=True)
class LeaseExpired:
    pass


@dataclass(frozen=True)
class InterruptionNoticed:
    """The place takes the machine back in so many seconds."""

    seconds: float


@dataclass(frozen=True)
class DeadlineChanged:
    """When the machine's time is over, as far as is known now; None: never."""

    deadline: Deadline | None


@dataclass(frozen=True)
class CheckpointRequested:
    """So many checkpoints were asked for since the job began."""

    count: int


@dataclass(frozen=True)
class AttemptReleased:
    """The control plane has settled the attempt without us (410): nothing of it is wanted any more."""


@dataclass(frozen=True)
class Tick:
    now: float


@dataclass(frozen=True)
class OutputsStored:
    complete: bool
    text: str = ""


Event = Union[
    StagingDone,
    StagingFailed,
    ProcessStarted,
    StartFailed,
    ProcessEnded,
    StopRequested,
    LeaseExpired,
    InterruptionNoticed,
    DeadlineChanged,
    CheckpointRequested,
    AttemptReleased,
    Tick,
    OutputsStored,
]


@dataclass(frozen=True)
class StartStaging:
    pass


@dataclass(frozen=True)
class AbortStaging:
    """Stop preparing, and forget the process that would have been started."""


@dataclass(frozen=True)
class StartProcess:
    pass


@dataclass(frozen=True)
class SendSignal:
    """Send it to the whole process group; KILL also to everything else that belongs to the job."""

    number: int


@dataclass(frozen=True)
class WriteStopFile:
    pass


@dataclass(frozen=True)
class RequestCheckpoint:
    """Tell the program to save a checkpoint and go on."""


@dataclass(frozen=True)
class SendMessage:
    kind: MessageKind
    data: dict[str, object]


@dataclass(frozen=True)
class StoreOutputs:
    pass


@dataclass(frozen=True)
class Finish:
    """Leave once everything said is acknowledged; at once when `deliver` is false."""

    deliver: bool = True


Action = Union[
    StartStaging,
    AbortStaging,
    StartProcess,
    SendSignal,
    WriteStopFile,
    RequestCheckpoint,
    SendMessage,
    StoreOutputs,
    Finish,
]
Actions = tuple[Action, ...]
