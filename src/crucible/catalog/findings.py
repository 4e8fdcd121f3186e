"""Findings: what is wrong with a price or a row, which rule it breaks, and the fix."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.views.catalog import PriceFindingView


class Rule(enum.StrEnum):
    UNREADABLE = "unreadable"
    DUPLICATE = "duplicate"
    UNKNOWN_GPU = "unknown_gpu"
    UNKNOWN_LIST = "unknown_list"
    IMPOSSIBLE_SHAPE = "impossible_shape"
    BAD_DATE = "bad_date"
    MISSING = "missing"
    ZERO = "zero"
    NEGATIVE = "negative"
    STALE = "stale"
    OLD = "old"
    GPU_OUTLIER = "gpu_outlier"
    CPU_OUTLIER = "cpu_outlier"
    REGION_OUTLIER = "region_outlier"
    SPOT_ABOVE_ON_DEMAND = "spot_above_on_demand"
    RESERVED_ABOVE_ON_DEMAND = "reserved_above_on_demand"
    LONGER_COSTS_MORE = "longer_costs_more"


WARNINGS = frozenset({Rule.OLD})
"""Rules that only warn: the price is still offered. All other rules refuse it."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with a price or a row.

    `row`: label of the row; `column`: the price's column, or empty for the whole row; `origin`: file and line.
    """

    rule: Rule
    row: str
    what: str
    fix: str
    column: str = ""
    origin: str = ""
    key: tuple[str, str, str] | None = None

    @property
    def refused(self) -> bool:
        return self.rule not in WARNINGS

    @property
    def view(self) -> PriceFindingView:
        return PriceFindingView(
            rule=self.rule.value,
            refused=self.refused,
            row=self.row,
            price=self.column or None,
            what=self.what,
            fix=self.fix,
            origin=self.origin or None,
        )
