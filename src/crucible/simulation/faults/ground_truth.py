"""What really happened in the simulated world, whatever the control plane believes."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass


@dataclass(frozen=True)
class RunningProgram:
    """A running user program. `due`: the virtual time at which its time limit ends it, or None without a limit.

    `node`: the computer whose CPUs it uses; empty if its machine has no other programs. `rank`: its number among the
    programs of a gang.
    """

    job: str
    attempt: str
    machine: str
    step: int
    due: float | None = None
    node: str = ""
    cpus: float = 0.0
    rank: int = 0


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
    rank: int
    n: int
    start: int
    end: int
    sha256: str


@dataclass(frozen=True)
class OutputFile:
    """An output file of a program, whose announcement was acknowledged."""

    job: str
    attempt: str
    path: str
    sha256: str


TERMINAL = ("completed", "failed", "cancelled")
"""The final states of a job."""


class GroundTruth:
    """Records what happened, by attempt and rank. `finishing`: programs that completed; their attempts' end was not
    checked yet.

    Calls `broken` at once if two programs of one job run at the same time, unless they are ranks of one attempt.
    """

    def __init__(self, broken: Callable[[str], None]) -> None:
        self._broken = broken
        self.live: list[RunningProgram] = []
        self.began: dict[tuple[str, int], list[int]] = {}
        self.completed: set[tuple[str, int]] = set()
        self.failed: set[str] = set()
        self.finishing: list[tuple[str, int]] = []
        self.submitted: dict[str, str] = {}
        self.saved: dict[tuple[str, str], SavedCheckpoint] = {}
        self.written: list[OutputSegment] = []
        self.outputs: dict[tuple[str, str], OutputFile] = {}
        self.cancelled: set[str] = set()
        self.doubtful: set[str] = set()
        self.cpus: dict[str, float] = {}
        """The CPUs of each node."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Sizes of all collections of acknowledgements; they change whenever something was acknowledged."""
        acknowledged: tuple[Sized, ...] = (
            self.submitted,
            self.saved,
            self.written,
            self.outputs,
            self.cancelled,
            self.doubtful,
        )
        return tuple(map(len, acknowledged))

    def report(self, what: str) -> None:
        """Report a broken invariant without raising, for callers inside simulated code that would catch it."""
        self._broken(what)

    def started(self, program: RunningProgram) -> None:
        others = [other for other in self.live if other.job == program.job and not _is_peer(other, program)]
        began = self.began.setdefault((program.attempt, program.rank), [])
        self.live.append(program)
        began.append(program.step)
        if others:
            self._broken(f"two programs of {program.job} run: {others[0].attempt} and {program.attempt}")
        if len(began) > 1:
            self._broken(f"the program of {program.attempt} was started twice")
        used = sum(other.cpus for other in self.live if other.node == program.node)
        if program.node and used > self.cpus[program.node]:
            self._broken(f"programs use {used:g} of {self.cpus[program.node]:g} CPUs of {program.node}")

    def ended(self, program: RunningProgram) -> None:
        self.live.remove(program)

    def complete(self, program: RunningProgram) -> None:
        """Record that the program did all its work; its attempt ends when its outputs are stored."""
        self.completed.add((program.attempt, program.rank))
        self.finishing.append((program.attempt, program.rank))

    def acknowledged(self, key: str, job: str) -> None:
        """Record an acknowledged submission: from now on the job must exist."""
        if self.submitted.setdefault(key, job) != job:
            self._broken(f"{key} was acknowledged as {self.submitted[key]} and as {job}")

    def cancel(self, job: str) -> None:
        """Record an acknowledged cancel: the job must stay cancelled until it is resumed."""
        if job not in self.doubtful:
            self.cancelled.add(job)

    def resume(self, job: str) -> None:
        """Record a request to resume: it may take effect at any time, so cancels of the job are no longer checked."""
        self.cancelled.discard(job)
        self.doubtful.add(job)

    def checkpoint(self, saved: SavedCheckpoint) -> None:
        self.saved[saved.attempt, saved.sha256] = saved

    def output(self, stored: OutputFile) -> None:
        self.outputs[stored.attempt, stored.path] = stored


def _is_peer(one: RunningProgram, other: RunningProgram) -> bool:
    """Return whether both are programs of one gang."""
    return one.attempt == other.attempt and one.rank != other.rank
