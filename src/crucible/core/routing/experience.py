"""Experience: what past jobs really took beside what was predicted, and what that says about the next prediction.

Ratios of real to predicted time are taken together from the general to the particular: all jobs, those of the same
framework, of the same GPU, of both, of the same script. Each level starts from what the one above says and moves away
from it as its own jobs become many.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crucible.core.profile import Confidence

SLUGGISH = 3.0
"""So many jobs of a level weigh as much as everything more general."""
WIDEST = math.log(100)
"""A ratio beyond that is counted as that: a job that was wrong about everything teaches no more."""
CLOSE = 0.15
"""How far off a prediction may be, as a share of what it took."""
SURE_AFTER = 3


@dataclass(frozen=True)
class Like:
    """What makes jobs alike. `script` is empty where nothing but its own code says what a job is."""

    framework: str = ""
    gpu: str = ""
    script: str = ""


@dataclass(frozen=True)
class Lesson:
    """A job that has ended: what it was like, and its seconds of computing as predicted and as they were.

    `predicted` is what was told, with the correction of its day; `analytic` what the model said before that.
    """

    like: Like
    analytic: float
    predicted: float
    real: float

    @property
    def log_ratio(self) -> float:
        return min(max(math.log(self.real / self.analytic), -WIDEST), WIDEST)

    @property
    def error(self) -> float:
        """As a share of what it took; 0.5 is half as long again or half as long."""
        return abs(self.predicted - self.real) / self.real


@dataclass(frozen=True)
class Correction:
    """`factor` times what the model says. `lessons` is how many jobs of the same script spoke for it."""

    factor: float = 1.0
    lessons: int = 0
    confidence: Confidence | None = None
    """None: as sure as the model is by itself."""


@dataclass(frozen=True)
class Accuracy:
    """Of predictions whose jobs have ended. `median_error` is None where there are none."""

    count: int
    median_error: float | None
    close: float | None
    """The share of them that was within 15 % of what it took."""


def correction(lessons: Iterable[Lesson], like: Like) -> Correction:
    usable = [lesson for lesson in lessons if lesson.analytic > 0 and lesson.real > 0]
    belief = 0.0
    for level in _levels(usable, like):
        weight = len(level) + SLUGGISH
        belief = (sum(lesson.log_ratio for lesson in level) + SLUGGISH * belief) / weight
    same = _of_script(usable, like)
    return Correction(math.exp(belief), len(same), _confidence(same))


def accuracy(lessons: Iterable[Lesson]) -> Accuracy:
    errors = [lesson.error for lesson in lessons if lesson.real > 0 and lesson.predicted > 0]
    if not errors:
        return Accuracy(0, None, None)
    close = sum(error <= CLOSE for error in errors) / len(errors)
    return Accuracy(len(errors), statistics.median(errors), close)


def _levels(lessons: Sequence[Lesson], like: Like) -> list[list[Lesson]]:
    framework = [one for one in lessons if one.like.framework == like.framework]
    gpu = [one for one in lessons if one.like.gpu == like.gpu]
    both = [one for one in framework if one.like.gpu == like.gpu]
    return [list(lessons), framework, gpu, both, _of_script(lessons, like)]


def _of_script(lessons: Sequence[Lesson], like: Like) -> list[Lesson]:
    """On whatever GPU; on the same one where there are any."""
    if not like.script:
        return []
    same = [one for one in lessons if one.like.script == like.script]
    return [one for one in same if one.like.gpu == like.gpu] or same


def _confidence(same: Sequence[Lesson]) -> Confidence | None:
    if len(same) < SURE_AFTER:
        return None
    spread = statistics.stdev(lesson.log_ratio for lesson in same)
    return Confidence.HIGH if spread <= CLOSE else Confidence.MEDIUM
