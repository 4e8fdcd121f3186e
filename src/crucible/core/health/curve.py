"""Curves from the points of a series: the current run, its noise and its levels. Robust to spikes and gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from crucible.core.health.values import Part, Point

NEAR = 5
"""Points compared at each end to tell whether a series was restarted."""
FARTHEST = 1e100


@dataclass(frozen=True)
class Curve:
    """The finite points of the current run, in order."""

    points: tuple[tuple[float, float], ...]

    @property
    def values(self) -> list[float]:
        return [value for _step, value in self.points]

    def __len__(self) -> int:
        return len(self.points)

    def step(self, index: int) -> float:
        return self.points[index][0]


def curve_of(parts: Sequence[Part], sign: float = 1.0) -> Curve:
    """Return the curve of the current run; `sign` -1 flips a series that should rise.

    Resuming from a checkpoint repeats some steps; a run from the beginning (another fold or attempt) restarts the
    curve.
    """
    runs = [run for part in parts for run in _split(part) if run]
    current: list[Point] = []
    for run in runs:
        if current and _restarted(current, run):
            current = []
        current.extend(run)
    return Curve(tuple((point.step, sign * _bounded(point.value)) for point in current if point.value is not None))


def _bounded(value: float) -> float:
    """Clamp a value, so that sums stay finite."""
    return min(max(value, -FARTHEST), FARTHEST)


def _split(part: Part) -> Iterable[list[Point]]:
    """Split a part where the step goes back; points that are not finite are left out."""
    run: list[Point] = []
    for point in part:
        if point.value is None or not math.isfinite(point.value):
            continue
        if run and point.step < run[-1].step:
            yield run
            run = []
        run.append(point)
    yield run


def _restarted(before: Sequence[Point], after: Sequence[Point]) -> bool:
    """Return whether the values are closer to the start of the run before than to its end."""
    first, last = _level(before[:NEAR]), _level(before[-NEAR:])
    return abs(_level(after[:NEAR]) - first) < abs(_level(after[:NEAR]) - last) and after[0].step <= before[0].step


def _level(points: Sequence[Point]) -> float:
    return median(point.value for point in points if point.value is not None)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of the values around their trend, from the differences of neighbours."""
    if len(values) < 3:
        return 0.0
    steps = [after - before for before, after in pairwise(values)]
    centre = median(steps)
    return 1.4826 * median(abs(step - centre) for step in steps) / math.sqrt(2)


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half, which spikes do not move.

    Not the median: a long series is thinned to its lowest and highest points, and a median jumps between those.
    """
    ordered, cut = sorted(values), len(values) // 4
    return fmean(ordered[cut : len(ordered) - cut])


def standard_error(values: Sequence[float], count: int) -> float:
    """Return the standard error of the interquartile mean of `count` values; rather too large than too small."""
    return 1.2533 * noise(values) / math.sqrt(max(count, 1))


def levels(values: Sequence[float], most: int = 16, least: int = 5) -> list[float]:
    """Return the interquartile means of up to `most` equal sections of at least `least` values, in order."""
    count = max(1, min(most, len(values) // least))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [interquartile_mean(values[a:b]) for a, b in pairwise(edges)]
