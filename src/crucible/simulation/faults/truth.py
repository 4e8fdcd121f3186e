"""The truth: what really happened in the world, whatever the control plane believes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A user's program that runs."""

    job: str
    attempt: str
    machine: str
    step: int


@dataclass(frozen=True)
class Saved:
    """A checkpoint whose announcement was acknowledged."""

    job: str
    attempt: str
    step: int
    sha256: str


class Truth:
    """`broken` is told at once when two programs of one job run."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        self._broken = broken
        self.live: list[Running] = []
        self.began: dict[str, list[int]] = {}
        self.completed: set[str] = set()
        self.failed: set[str] = set()
        self.submitted: dict[str, str] = {}
        self.saved: dict[tuple[str, str], Saved] = {}

    def started(self, program: Running) -> None:
        others = [other for other in self.live if other.job == program.job]
        self.live.append(program)
        self.began.setdefault(program.attempt, []).append(program.step)
        if others:
            self._broken(f"two programs of {program.job} run: {others[0].attempt} and {program.attempt}")
        if len(self.began[program.attempt]) > 1:
            self._broken(f"the program of {program.attempt} was started twice")

    def ended(self, program: Running) -> None:
        self.live.remove(program)

    def acknowledged(self, key: str, job: str) -> None:
        """A submission was answered: from now on it exists for ever."""
        if self.submitted.setdefault(key, job) != job:
            self._broken(f"{key} was acknowledged as {self.submitted[key]} and as {job}")

    def checkpoint(self, saved: Saved) -> None:
        self.saved[saved.attempt, saved.sha256] = saved
