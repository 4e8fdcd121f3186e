"""The inputs and the results of judging a job's health."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Point(NamedTuple):
    """`value` is None if it was not finite; `at` is the agent's clock."""

    step: float
    value: float | None
    at: float


Part = tuple[Point, ...]
"""Points of one series as one attempt reported them, in the order of arrival."""


class Stage(enum.StrEnum):
    """The stage of a job, as far as its health is concerned."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (Stage.COMPLETED, Stage.FAILED, Stage.CANCELLED)


@dataclass(frozen=True)
class HealthInputs:
    """The inputs for judging a job. Times are differences on one clock, so that no two clocks are compared.

    `series` has, for each name, a part per attempt, the oldest first, empty for an attempt that has not reported it;
    only attempts that resumed from a checkpoint have parts before their own. `tails` has the last points of series
    that are thinned in `series`. `quiet_seconds`: since the last output; `ran_seconds`: since the program started;
    None: unknown.
    """

    stage: Stage
    series: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    tails: Mapping[str, Part] = field(default_factory=dict)
    fraction: float | None = None
    ran_seconds: float | None = None
    quiet_seconds: float | None = None
    gpus: int = 0
    memory_limit: int | None = None
    unreachable: bool = False
    reason: str = ""
    advice: str = ""


class Verdict(enum.StrEnum):
    """Ordered from the worst: the first in this order of several findings is the verdict."""

    NOT_FINITE = "not_finite"
    DIVERGING = "diverging"
    STALLED = "stalled"
    FAILED = "failed"
    NEAR_MEMORY_LIMIT = "near_memory_limit"
    OVERFITTING = "overfitting"
    NOT_CONVERGING = "not_converging"
    IDLE_GPU = "idle_gpu"
    PLATEAU = "plateau"
    UNREACHABLE = "unreachable"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    TOO_EARLY = "too_early"
    HEALTHY = "healthy"
    FINISHED_WELL = "finished_well"


class Level(enum.StrEnum):
    """BAD: it gets worse or does nothing; WARNING: check it; GOOD: nothing to do."""

    BAD = "bad"
    WARNING = "warning"
    GOOD = "good"


_BAD = frozenset({Verdict.NOT_FINITE, Verdict.DIVERGING, Verdict.STALLED, Verdict.FAILED})
_WARNING = frozenset(
    {
        Verdict.NEAR_MEMORY_LIMIT,
        Verdict.OVERFITTING,
        Verdict.NOT_CONVERGING,
        Verdict.IDLE_GPU,
        Verdict.PLATEAU,
        Verdict.UNREACHABLE,
    }
)
_ORDER = {verdict: index for index, verdict in enumerate(Verdict)}


def level_of(verdict: Verdict) -> Level:
    if verdict in _BAD:
        return Level.BAD
    return Level.WARNING if verdict in _WARNING else Level.GOOD


@dataclass(frozen=True)
class Finding:
    """One observation about a job. `evidence` holds the numbers behind it, `series` and `step` where to look."""

    verdict: Verdict
    message: str
    advice: str = ""
    series: str | None = None
    step: float | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        return level_of(self.verdict)


@dataclass(frozen=True)
class Judgement:
    """At least one finding, the worst first; the verdict is that of the worst."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Finding:
        return self.findings[0]

    @property
    def verdict(self) -> Verdict:
        return self.worst.verdict

    @property
    def level(self) -> Level:
        return self.worst.level


def judgement(findings: list[Finding]) -> Judgement:
    """Return the judgement of these findings; those of one verdict keep their order."""
    return Judgement(tuple(sorted(findings, key=lambda finding: _ORDER[finding.verdict])))
