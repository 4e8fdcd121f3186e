"""A figure: its measured value, its bound, and whether the bound is held."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Figure(BaseModel):
    """`value` is compared with the bound; `also` are further numbers, such as other percentiles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: float
    bound: float
    unit: str
    also: dict[str, float] = {}

    @property
    def held(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        beside = ", ".join(f"{name} {value:.3g}" for name, value in self.also.items())
        verdict = "" if self.held else "  over its bound"
        return f"{self.name:<34}{self.value:>9.3g} {self.unit:<7}at most {self.bound:<6g} {beside}{verdict}"


def median(took: Sequence[float]) -> float:
    return statistics.median(took)


def percentile(took: Sequence[float], part: float) -> float:
    """Return the percentile `part` (0 to 1) of the values."""
    ordered = sorted(took)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
