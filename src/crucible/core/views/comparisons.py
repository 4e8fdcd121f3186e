"""Comparisons of jobs."""

from crucible.core.views.base import View
from crucible.core.views.jobs import BriefJobView


class LineView(View):
    """One setting or measure of all compared jobs, in their order; `winner` is the index of the best."""

    name: str
    values: tuple[str | int | float | bool | None, ...] = ()
    differs: bool = False
    winner: int | None = None


class MeasuresView(View):
    last: tuple[LineView, ...] = ()
    best: tuple[LineView, ...] = ()


class ComparedView(BriefJobView):
    """A compared job; `verdict` is its health in a word."""

    verdict: str | None = None


class ComparisonView(View):
    jobs: tuple[ComparedView, ...] = ()
    config: tuple[LineView, ...] = ()
    metrics: MeasuresView = MeasuresView()
