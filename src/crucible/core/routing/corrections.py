"""Correct runtime predictions by what past jobs really took.

Ratios of actual to predicted time are combined from the general to the particular: all jobs, then jobs of the same
framework, the same GPU, both, and the same script. Each level starts from the value of the level above and moves away
from it as it has more jobs of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crucible.core.routing.profile import Confidence

PRIOR_WEIGHT = 3.0
"""The level above counts as much as this number of a level's own jobs."""
MAX_LOG_RATIO = math.log(100)
"""Ratios are clamped to this: a prediction that was wrong about everything teaches no more."""
CLOSE = 0.15
"""The largest relative error of a prediction that still counts as close."""
SURE_AFTER = 3
"""Runs of the same script on the same GPU that raise the confidence of a prediction."""

_Group = tuple[str | None, str | None, str | None]
"""Framework, GPU and script that the jobs of a group have in common; None: any."""


@dataclass(frozen=True)
class Similarity:
    """The properties by which jobs count as alike. `script` is empty if the text of the program is not known."""

    framework: str = ""
    gpu: str = ""
    script: str = ""


@dataclass(frozen=True)
class Forecast:
    """The predicted runtime of a job on one instance type in seconds, by the model alone and with the correction."""

    similarity: Similarity
    backend: str
    instance_type: str
    analytic: float
    predicted: float


@dataclass(frozen=True)
class PastRun:
    """A completed job: its similarity, and its compute time in seconds, predicted and real.

    `predicted` includes the correction of that time; `analytic` is the model's value without it.
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
        """The relative error of the prediction: 0.5 is 50 % too long or too short."""
        return abs(self.predicted - self.real) / self.real


@dataclass(frozen=True)
class Correction:
    """The model's time has to be multiplied by `factor`; `runs` of the same script contributed to it."""

    factor: float = 1.0
    runs: int = 0
    confidence: Confidence | None = None
    """None: the model's own confidence holds."""


@dataclass(frozen=True)
class Accuracy:
    """How good the predictions of completed jobs were. `median_error` is None if there are none."""

    count: int
    median_error: float | None
    close: float | None
    """The share of predictions within 15 % of the real time."""


class PastRuns:
    """Past jobs, grouped once, so that corrections for many GPUs are cheap to compute."""

    def __init__(self, runs: Iterable[PastRun] = ()) -> None:
        usable = [run for run in runs if run.analytic > 0 and run.real > 0]
        self.jobs = len(usable)
        """How many jobs the corrections rest on."""
        self.accuracy = accuracy(usable)
        self._ratios: dict[_Group, list[float]] = {}
        for run in usable:
            for group in (*_groups(run.similarity), *_same_script(run.similarity)):
                self._ratios.setdefault(group, []).append(run.log_ratio)

    def correction(self, like: Similarity) -> Correction:
        belief = 0.0
        for group in _groups(like):
            belief = _update_belief(belief, self._ratios.get(group, ()))
        on_gpu, anywhere = (self._ratios.get(group, ()) for group in _same_script(like))
        same = (on_gpu or anywhere) if like.script else ()
        return Correction(math.exp(_update_belief(belief, same)), len(same), _confidence(on_gpu) if same else None)


def correction(runs: Iterable[PastRun], like: Similarity) -> Correction:
    return PastRuns(runs).correction(like)


def accuracy(runs: Iterable[PastRun]) -> Accuracy:
    errors = [run.error for run in runs if run.real > 0 and run.predicted > 0]
    if not errors:
        return Accuracy(0, None, None)
    close = sum(error <= CLOSE for error in errors) / len(errors)
    return Accuracy(len(errors), statistics.median(errors), close)


def _groups(like: Similarity) -> tuple[_Group, ...]:
    """Return the groups of a job apart from its script's, from the general to the particular."""
    every, framework, gpu = (None, None, None), (like.framework, None, None), (None, like.gpu, None)
    return every, framework, gpu, (like.framework, like.gpu, None)


def _same_script(like: Similarity) -> tuple[_Group, _Group]:
    """Return the groups of the same script on this GPU, and on any GPU."""
    return (None, like.gpu, like.script), (None, None, like.script)


def _update_belief(belief: float, ratios: Sequence[float]) -> float:
    return (sum(ratios) + PRIOR_WEIGHT * belief) / (len(ratios) + PRIOR_WEIGHT)


def _confidence(ratios: Sequence[float]) -> Confidence | None:
    """Return the confidence that runs of one script on one GPU give; runs on other GPUs give none."""
    if len(ratios) < SURE_AFTER:
        return None
    return Confidence.HIGH if statistics.stdev(ratios) <= CLOSE else Confidence.MEDIUM
