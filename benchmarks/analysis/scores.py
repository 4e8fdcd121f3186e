"""Scores: the share of answers that agree with labels, and macro-F1."""

from __future__ import annotations

from collections.abc import Sequence


def accuracy(said: Sequence[object], true: Sequence[object]) -> float:
    return sum(one == other for one, other in zip(said, true, strict=True)) / len(true) if true else 0.0


def macro_f1(said: Sequence[str], true: Sequence[str]) -> float:
    """Return the mean F1 over the classes that occur."""
    classes = sorted({*said, *true})
    return sum(_f1(said, true, each) for each in classes) / len(classes) if classes else 0.0


def _f1(said: Sequence[str], true: Sequence[str], which: str) -> float:
    pairs = list(zip(said, true, strict=True))
    hits = sum(one == other == which for one, other in pairs)
    wrong = sum((one == which) != (other == which) for one, other in pairs)
    return 2 * hits / (2 * hits + wrong) if hits or wrong else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
