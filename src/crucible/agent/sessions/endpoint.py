"""What sessions find at a job: where its program runs, with which variables, and what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Protocol

from crucible.wire.http import sessions as s


@dataclass(frozen=True)
class JobContext:
    """`admit` puts a process under the job's limits, `pids` are the job's processes, `alive`: its program runs."""

    folder: Path
    env: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    admit: Callable[[int], None]
    pids: Callable[[], list[int]]
    alive: Callable[[], bool]


class SessionEndpoint(Protocol):
    """What is at this end of a session."""

    sources: dict[int, s.FrameKind]
    """Descriptors to read from, and as what their data are sent."""
    sink: Optional[int]
    """The descriptor that takes input; None once it takes no more."""
    waker: Optional[int]
    """Becomes readable when `over` may have something to say."""

    def read(self, source: int, size: int) -> bytes:
        """What is there, perhaps nothing; the source is gone at its end."""

    def write(self, data: bytes) -> int:
        """How many of the bytes were taken; the sink is gone where it is broken."""

    def end_input(self) -> None:
        """No more input follows."""

    def resize(self, size: s.Size) -> None: ...

    def over(self) -> Optional[s.Over]:
        """How it ended; None while it goes on."""

    def leave(self) -> None:
        """Nobody listens any more, or it is over: leave nothing behind."""
