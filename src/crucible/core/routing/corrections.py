"""Correct runtime predictions by what past jobs really took.

Ratios of real to predicted time are taken together from the general to the particular: all jobs, those of the same
framework, of the same GPU, of both, of the same script. Each level starts from what the one above says and moves away
from it as its own jobs become many.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crucible.core.routing.profile import Confidence

PRIOR_WEIGHT = 3.0
"""So many jobs of a level weigh as much as everything more general."""
MAX_LOG_RATIO = math.log(100)
"""A ratio beyond that is counted as that: a job that was wrong about everything teaches no more."""
CLOSE = 0.15
"""How far off a prediction may be, as a share of what it took."""
SURE_AFTER = 3

_Group = tuple[str | None, str | None, str | None]
"""Framework, GPU and script of jobs that are alike; None: any."""


@dataclass(frozen=True)
class Similarity:
    """What makes jobs alike. `script` is empty where nothing but its own code says what a job is."""

    framework: str = ""
    gpu: str = ""
    script: str = ""


@dataclass(frozen=True)
class Forecast:
    """How long a job will compute on one type of machine, in seconds: by the model alone, and with past jobs."""

    similarity: Similarity
    backend: str
    instance_type: str
    analytic: float
    predicted: float


@dataclass(frozen=True)
class PastRun:
    """A job that has ended: what it was like, and its seconds of computing as predicted and as they were.

    `predicted` is what was told, with the correction of its day; `analytic` what the model said before that.
    """

    similarity: Similarity
    analytic: float
    predicted: float
    real: float

    @property
    def log_ratio(self) -> float:
        return min(max(math.log(self.real / self.analytic), -MAX_LOG_RATIO), MAX_LOG_RATIO)

    @property
    def error(self) -> float:
        """As a share of what it took; 0.5 is half as long again or half as long."""
        return abs(self.predicted - self.real) / self.real


@dataclass(frozen=True)
class Correction:
    """`factor` times what the model says. `lessons` is how many jobs of the same script spoke for it."""

    factor: float = 1.0
    runs: int = 0
    confidence: Confidence | None = None
    """None: as sure as the model is by itself."""


@dataclass(frozen=True)
class Accuracy:
    """Of predictions whose jobs have ended. `median_error` is None where there are none."""

    count: int
    median_error: float | None
    close: float | None
    """The share of them that was within 15 % of what it took."""


class PastRuns:
    """Past jobs, grouped once, so that corrections for many GPUs are cheap."""

    def __init__(self, lessons: Iterable[PastRun] = ()) -> None:
        usable = [lesson for lesson in lessons if lesson.analytic > 0 and lesson.real > 0]
        self.jobs = len(usable)
        """How many jobs speak."""
        self.accuracy = accuracy(usable)
        self._ratios: dict[_Group, list[float]] = {}
        for lesson in usable:
            for crowd in (*_groups(lesson.similarity), *_same_script(lesson.similarity)):
                self._ratios.setdefault(crowd, []).append(lesson.log_ratio)

    def correction(self, like: Similarity) -> Correction:
        belief = 0.0
        for crowd in _groups(like):
            belief = _update_belief(belief, self._ratios.get(crowd, ()))
        here, everywhere = (self._ratios.get(crowd, ()) for crowd in _same_script(like))
        same = (here or everywhere) if like.script else ()
        return Correction(math.exp(_update_belief(belief, same)), len(same), _confidence(here) if same else None)


def correction(lessons: Iterable[PastRun], like: Similarity) -> Correction:
    return PastRuns(lessons).correction(like)


def accuracy(lessons: Iterable[PastRun]) -> Accuracy:
    errors = [lesson.error for lesson in lessons if lesson.real > 0 and lesson.predicted > 0]
    if not errors:
        return Accuracy(0, None, None)
    close = sum(error <= CLOSE for error in errors) / len(errors)
    return Accuracy(len(errors), statistics.median(errors), close)


def _groups(like: Similarity) -> tuple[_Group, ...]:
    """The crowds that a job belongs to whatever its script is, from the general to the particular."""
    every, framework, gpu = (None, None, None), (like.framework, None, None), (None, like.gpu, None)
    return every, framework, gpu, (like.framework, like.gpu, None)


def _same_script(like: Similarity) -> tuple[_Group, _Group]:
    """On this GPU, and on any."""
    return (None, like.gpu, like.script), (None, None, like.script)


def _update_belief(belief: float, ratios: Sequence[float]) -> float:
    return (sum(ratios) + PRIOR_WEIGHT * belief) / (len(ratios) + PRIOR_WEIGHT)


def _confidence(here: Sequence[float]) -> Confidence | None:
    """Of one script on one GPU: what it took on others makes nobody sure."""
    if len(here) < SURE_AFTER:
        return None
    return Confidence.HIGH if statistics.stdev(here) <= CLOSE else Confidence.MEDIUM
