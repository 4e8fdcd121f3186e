"""The contract of a limiter: memory, CPU and process limits for the processes of one attempt."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Optional

KILL_DEADLINE = 10.0
"""Seconds to wait for killed processes to be gone."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class ProcessesRemain(OSError):
    """Processes are still there though they were killed (a kernel wait, most likely)."""


class Confinement(ABC):
    """The processes of one attempt, held together and limited.

    All of it may be called by another process than the one that prepared it, and after a restart.
    """

    @abstractmethod
    def enter(self) -> None:
        """Puts the calling process in. For the child, between fork and exec; whatever it starts is in too."""

    @abstractmethod
    def admit(self, pid: int) -> None:
        """Puts another process in, which has started nothing yet. Raises OSError."""

    @abstractmethod
    def oom_killed(self) -> bool:
        """Whether anything in it was killed for memory; stays true until `remove`."""

    @abstractmethod
    def usage(self) -> tuple[float, int]:
        """CPU seconds so far and bytes of memory now."""

    @abstractmethod
    def peak_memory(self) -> int:
        """The most bytes of memory seen at once."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Living processes in it, wherever they moved in process groups and sessions."""

    @abstractmethod
    def tick(self) -> bool:
        """To be called about every second. Over memory: kills everything and returns True."""

    @abstractmethod
    def kill_all(self) -> None:
        """Kills every process in it and waits until none is left; raises StillBusy after KILL_DEADLINE."""

    @abstractmethod
    def remove(self) -> None:
        """Leaves nothing behind. Idempotent; raises StillBusy while processes are in it."""


class Limiter(ABC):
    """One mechanism. `attempt_id` is the value of CRUCIBLE_ATTEMPT_ID in the attempt's environment."""

    @abstractmethod
    def describe(self) -> str:
        """For people: which mechanism, what is enforced and what is not."""

    @abstractmethod
    def prepare(
        self,
        attempt_id: str,
        memory_bytes: Optional[int] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Confinement:
        """A confinement; None means no limit of that kind. One that is left of the same attempt is reused."""

    @abstractmethod
    def find_left(self, attempt_id: str) -> Optional[Confinement]:
        """What an earlier process prepared for this attempt and did not remove."""


def check_name(attempt_id: str) -> str:
    """An attempt's id becomes the name of a folder."""
    if not _NAME.fullmatch(attempt_id):
        raise ValueError(f"not the id of an attempt: {attempt_id!r}")
    return attempt_id
