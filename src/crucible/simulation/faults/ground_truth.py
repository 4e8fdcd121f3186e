"""The truth: what really happened in the world, whatever the control plane believes."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass


@dataclass(frozen=True)
class RunningProgram:
    """A user's program that runs. `due`: the virtual time at which its limit ends it; None: it has no limit."""

    job: str
    attempt: str
    machine: str
    step: int
    due: float | None = None


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint whose announcement was acknowledged."""

    job: str
    attempt: str
    step: int
    sha256: str


@dataclass(frozen=True)
class OutputSegment:
    """A stretch of a program's output whose announcement was acknowledged."""

    job: str
    attempt: str
    n: int
    start: int
    end: int
    sha256: str


@dataclass(frozen=True)
class OutputFile:
    """A file that a program left, whose announcement was acknowledged."""

    job: str
    attempt: str
    path: str
    sha256: str


TERMINAL = ("completed", "failed", "cancelled")
"""How a job may end."""


class GroundTruth:
    """`broken` is told at once when two programs of one job run. `finishing` are tries whose program completed."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        self._broken = broken
        self.live: list[RunningProgram] = []
        self.began: dict[str, list[int]] = {}
        self.completed: set[str] = set()
        self.failed: set[str] = set()
        self.finishing: list[str] = []
        self.submitted: dict[str, str] = {}
        self.saved: dict[tuple[str, str], SavedCheckpoint] = {}
        self.written: list[OutputSegment] = []
        self.outputs: dict[tuple[str, str], OutputFile] = {}
        self.cancelled: set[str] = set()
        self.doubtful: set[str] = set()

    @property
    def counts(self) -> tuple[int, ...]:
        """Changes whenever somebody was told something."""
        told: tuple[Sized, ...] = (
            self.submitted,
            self.saved,
            self.written,
            self.outputs,
            self.cancelled,
            self.doubtful,
        )
        return tuple(map(len, told))

    def report(self, what: str) -> None:
        """For those who must not raise where they find it."""
        self._broken(what)

    def started(self, program: RunningProgram) -> None:
        others = [other for other in self.live if other.job == program.job]
        self.live.append(program)
        self.began.setdefault(program.attempt, []).append(program.step)
        if others:
            self._broken(f"two programs of {program.job} run: {others[0].attempt} and {program.attempt}")
        if len(self.began[program.attempt]) > 1:
            self._broken(f"the program of {program.attempt} was started twice")

    def ended(self, program: RunningProgram) -> None:
        self.live.remove(program)

    def complete(self, program: RunningProgram) -> None:
        """It did all it was to do; its try is over when what it left is in."""
        self.completed.add(program.job)
        self.finishing.append(program.attempt)

    def acknowledged(self, key: str, job: str) -> None:
        """A submission was answered: from now on it exists for ever."""
        if self.submitted.setdefault(key, job) != job:
            self._broken(f"{key} was acknowledged as {self.submitted[key]} and as {job}")

    def cancel(self, job: str) -> None:
        """A cancel was answered: from now on nobody wants the job, until somebody resumes it."""
        if job not in self.doubtful:
            self.cancelled.add(job)

    def resume(self, job: str) -> None:
        """A resume was asked for. It may be answered late or never, and take effect: the job is not looked at again."""
        self.cancelled.discard(job)
        self.doubtful.add(job)

    def checkpoint(self, saved: SavedCheckpoint) -> None:
        self.saved[saved.attempt, saved.sha256] = saved

    def output(self, stored: OutputFile) -> None:
        self.outputs[stored.attempt, stored.path] = stored
