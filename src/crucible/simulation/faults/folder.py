"""What an attempt leaves on its machine's disk: it outlives its runner, not its machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.agent.clock import Deadline
from crucible.simulation.faults.program import Exit
from crucible.wire.desired import Assignment
from crucible.wire.messages import Kind, Message


@dataclass
class Folder:
    """`saved` are the steps of whole checkpoints; of those the first `uploaded` were announced."""

    assignment: Assignment
    lease: float | None
    deadline: Deadline | None
    spool: list[Message] = field(default_factory=list)
    acked: int = 0
    saved: list[int] = field(default_factory=list)
    uploaded: int = 0
    began: bool = False
    exit: Exit | None = None
    done: bool = False

    def say(self, kind: Kind, data: dict[str, object], at: float) -> None:
        self.spool.append(Message(len(self.spool) + 1, kind, at, data))

    def unsent(self) -> list[Message]:
        return self.spool[self.acked :]

    def has_said(self, kind: Kind) -> bool:
        return any(message.kind is kind for message in self.spool)
