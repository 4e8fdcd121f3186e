"""The signpost: a file that tells agents on this computer which server to speak to, now."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AgentsUrlFile:
    """Of several servers on a computer, the one on duty points it to itself; agents read it at every call."""

    path: Path
    url: str

    def write(self) -> None:
        """Replaced as a whole. A failure is told; the next renewal of the duty tries again."""
        try:
            if self._read() != self.url:
                fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
                fresh.write_text(self.url, encoding="utf-8")
                fresh.replace(self.path)
        except OSError as error:
            log.warning("agents cannot be told where we are", path=str(self.path), why=str(error))

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
