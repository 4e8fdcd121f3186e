"""Compare jobs side by side: their settings, their metrics, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crucible.core.health import Goal, goal_of
from crucible.core.job.spec import PYTHON

Value = str | float | int | bool | None


@dataclass(frozen=True)
class SeriesSummary:
    """The last, lowest and highest value of one series of one job."""

    last: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ComparedJob:
    """The settings and metrics of one job to compare."""

    config: Mapping[str, Value]
    metrics: Mapping[str, SeriesSummary]


@dataclass(frozen=True)
class ComparisonRow:
    """One setting or metric of all jobs, in order; `winner` is the index of the best value if only one is best."""

    name: str
    values: tuple[Value, ...]
    winner: int | None = None

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values)


@dataclass(frozen=True)
class Comparison:
    config: tuple[ComparisonRow, ...]
    last: tuple[ComparisonRow, ...]
    best: tuple[ComparisonRow, ...]


def compare_jobs(jobs: Sequence[ComparedJob]) -> Comparison:
    """Return the settings and metrics of all jobs row by row, sorted by name; None for what a job does not have."""
    keys = sorted({key for job in jobs for key in job.config})
    series = sorted({name for job in jobs for name in job.metrics})
    return Comparison(
        tuple(ComparisonRow(key, tuple(job.config.get(key) for job in jobs)) for key in keys),
        tuple(_ranked(name, [_last(job, name) for job in jobs]) for name in series),
        tuple(_ranked(name, [_best(job, name) for job in jobs]) for name in series if goal_of(name)),
    )


def parse_arguments(command: Sequence[str]) -> dict[str, Value]:
    """Parse the arguments of a command line: `--lr 0.1`, `--lr=0.1`, `--amp`, and the rest in order."""
    found: dict[str, Value] = {}
    rest: list[str] = []
    words = list(command)
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or not name:
            rest.append("python" if word == PYTHON else word)
        elif equals:
            found[name] = value
        elif words and not words[0].startswith("--"):
            found[name] = words.pop(0)
        else:
            found[name] = True
    return {**found, "command": " ".join(rest)}


def _last(job: ComparedJob, name: str) -> float | None:
    return job.metrics[name].last if name in job.metrics else None


def _best(job: ComparedJob, name: str) -> float | None:
    if name not in job.metrics:
        return None
    return job.metrics[name].high if goal_of(name) is Goal.HIGHER else job.metrics[name].low


def _ranked(name: str, values: Sequence[float | None]) -> ComparisonRow:
    goal = goal_of(name)
    known = [(value, index) for index, value in enumerate(values) if value is not None]
    if goal is None or len(known) < 2:
        return ComparisonRow(name, tuple(values))
    best = min(known)[0] if goal is Goal.LOWER else max(known)[0]
    winners = [index for value, index in known if value == best]
    return ComparisonRow(name, tuple(values), winners[0] if len(winners) == 1 else None)
