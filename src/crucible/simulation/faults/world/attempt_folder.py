"""The files of an attempt on its machine's disk: they outlive its runner, but not its machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.agent.clock import Deadline
from crucible.simulation.faults.world.event import ChangeSignal
from crucible.wire.documents.desired import Assignment
from crucible.wire.documents.messages import Message, MessageKind

SEGMENT_LINES = 3


@dataclass
class SimulatedAttemptFolder:
    """`saved` are the steps of complete checkpoints; the first `uploaded` of them were announced.

    `segments` are fixed pieces of the program's output, identical in every upload; the first `shipped` were announced.
    `outputs` are the output files of the program, by name.
    """

    assignment: Assignment
    lease: float | None
    deadline: Deadline | None
    spool: list[Message] = field(default_factory=list)
    acked: int = 0
    saved: list[int] = field(default_factory=list)
    uploaded: int = 0
    segments: list[bytes] = field(default_factory=list)
    shipped: int = 0
    outputs: dict[str, bytes] = field(default_factory=dict)
    _open: bytes = b""
    began: bool = False
    done: bool = False
    changed: ChangeSignal = field(default_factory=ChangeSignal)

    def add_message(self, kind: MessageKind, data: dict[str, object], at: float) -> None:
        self.spool.append(Message(len(self.spool) + 1, kind, at, data))
        self.changed.notify()

    def write(self, line: str, *, last: bool = False) -> None:
        """Append a line of output. The `last` line closes its segment."""
        self._open += f"{line}\n".encode()
        self.changed.notify()
        if last or self._open.count(b"\n") >= SEGMENT_LINES:
            self.segments.append(self._open)
            self._open = b""

    def save(self, step: int) -> None:
        self.saved.append(step)
        self.write(f"saved step {step}")

    def skip(self, step: int) -> None:
        """Save nothing: of a gang, the first rank saves for all."""
        self.write(f"reached step {step}")

    @property
    def is_uploaded(self) -> bool:
        """Whether all checkpoints and segments so far are stored and announced."""
        return self.uploaded == len(self.saved) and self.shipped == len(self.segments)

    def unsent(self) -> list[Message]:
        return self.spool[self.acked :]

    def has_message(self, kind: MessageKind) -> bool:
        return any(message.kind is kind for message in self.spool)
