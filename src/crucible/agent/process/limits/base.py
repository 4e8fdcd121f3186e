"""The contract of a limiter: memory, CPU and process limits for the processes of one attempt."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Optional

KILL_DEADLINE = 10.0
"""Seconds to wait until killed processes are gone."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class ProcessesRemain(OSError):
    """Processes are still there after SIGKILL, most likely in an uninterruptible kernel wait."""


class Confinement(ABC):
    """The processes of one attempt, as a group with limits.

    Any method may be called from another process than the one that prepared it, also after a restart.
    """

    @abstractmethod
    def enter(self) -> None:
        """Put the calling process, and thereby all its descendants, in. The child calls it between fork and exec."""

    @abstractmethod
    def admit(self, pid: int) -> None:
        """Put another process in, which must not have started children yet. Raises OSError."""

    @abstractmethod
    def oom_killed(self) -> bool:
        """Return whether a process in it was killed for memory; stays true until `remove`."""

    @abstractmethod
    def usage(self) -> tuple[float, int]:
        """Return CPU seconds so far and bytes of memory now."""

    @abstractmethod
    def peak_memory(self) -> int:
        """Return the peak memory in bytes."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Return living processes in it, whatever process group or session they moved to."""

    @abstractmethod
    def tick(self) -> bool:
        """Call it about every second. If over the memory limit, kill everything and return True."""

    @abstractmethod
    def kill_all(self) -> None:
        """Kill every process in it and wait until none is left. Raises ProcessesRemain after KILL_DEADLINE."""

    @abstractmethod
    def remove(self) -> None:
        """Remove it completely. Idempotent. Raises ProcessesRemain while processes are in it."""


class Limiter(ABC):
    """One mechanism. `attempt_id` is CRUCIBLE_ATTEMPT_ID in the attempt's environment."""

    @abstractmethod
    def describe(self) -> str:
        """Return a text for users: the mechanism, what it enforces and what it does not."""

    @abstractmethod
    def prepare(
        self,
        attempt_id: str,
        memory_bytes: Optional[int] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Confinement:
        """Return a confinement; None means no limit of that kind. An existing one of the attempt is reused."""

    @abstractmethod
    def find_left(self, attempt_id: str) -> Optional[Confinement]:
        """Return the confinement that an earlier process prepared for this attempt and did not remove."""


def check_name(attempt_id: str) -> str:
    """Return the id if it may become the name of a folder. Raises ValueError."""
    if not _NAME.fullmatch(attempt_id):
        raise ValueError(f"not an attempt id: {attempt_id!r}")
    return attempt_id
