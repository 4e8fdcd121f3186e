"""The two ends of a session: the job that it belongs to, and the endpoint that it is connected to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Protocol

from crucible.wire.http import sessions as s


@dataclass(frozen=True)
class JobContext:
    """A running job. `admit` puts a process under its limits, `pids` returns its processes, `alive` whether it runs."""

    folder: Path
    env: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    admit: Callable[[int], None]
    pids: Callable[[], list[int]]
    alive: Callable[[], bool]


class SessionEndpoint(Protocol):
    """The agent's end of a session: a command, or a connection to a port."""

    sources: dict[int, s.FrameKind]
    """Descriptors to read from, and the kind of frame for their data."""
    sink: Optional[int]
    """The descriptor that input is written to; None once it accepts no more."""
    waker: Optional[int]
    """Becomes readable when `over` may return a result."""

    def read(self, source: int, size: int) -> bytes:
        """Return the available data, perhaps none. At its end the source is removed from `sources`."""

    def write(self, data: bytes) -> int:
        """Write data, and return how many bytes were accepted. `sink` becomes None if it is broken."""

    def end_input(self) -> None:
        """Signal the end of input."""

    def resize(self, size: s.Size) -> None: ...

    def over(self) -> Optional[s.Over]:
        """Return how the endpoint ended; None while it runs."""

    def leave(self) -> None:
        """End the endpoint and everything that it started. Idempotent."""
