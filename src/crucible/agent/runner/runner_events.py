"""Events that happen to an attempt, and actions that a runner performs: the input and output of `runner_state`."""

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
    """The user's process runs. `data` is the content of the STARTED message besides the pid."""

    pid: int
    data: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class StartFailed:
    """The command cannot be executed; `code` is the exit code that a shell would report (126, 127)."""

    code: int
    text: str


@dataclass(frozen=True)
class ProcessEnded:
    """`code` or `signal` is set. `oom`: a process of the job was killed because of its memory limit.

    `by_itself`: it ended before the first signal was sent to it.
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
    """The provider announced that it will reclaim the machine in this many seconds."""

    seconds: float


@dataclass(frozen=True)
class DeadlineChanged:
    """The machine has a new deadline, or none."""

    deadline: Deadline | None


@dataclass(frozen=True)
class CheckpointRequested:
    """`count` is the number of checkpoints requested since the job began."""

    count: int


@dataclass(frozen=True)
class AttemptReleased:
    """The control plane has settled the attempt (410) and wants nothing more from it."""


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
    """Stop preparing; the process will not be started."""


@dataclass(frozen=True)
class StartProcess:
    pass


@dataclass(frozen=True)
class SendSignal:
    """Send a signal to the process group; SIGKILL also goes to every other process of the job."""

    number: int


@dataclass(frozen=True)
class WriteStopFile:
    pass


@dataclass(frozen=True)
class RequestCheckpoint:
    """Ask the program to save a checkpoint and continue."""


@dataclass(frozen=True)
class SendMessage:
    kind: MessageKind
    data: dict[str, object]


@dataclass(frozen=True)
class StoreOutputs:
    pass


@dataclass(frozen=True)
class Finish:
    """Exit once everything is acknowledged, or at once if not `deliver`."""

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
