"""Jobs side by side, as the server tells of them."""

from crucible.core.views.comparisons import (
    ComparedView,
    ComparisonView,
    LineView,
    MeasuresView,
)

__all__ = [
    "ComparedView",
    "ComparisonView",
    "LineView",
    "MeasuresView",
]
