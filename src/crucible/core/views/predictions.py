"""Predicted runtimes of jobs beside their real ones."""

from crucible.core.views.base import View
from crucible.core.views.plans import AccuracyView


class PredictionView(View):
    """A prediction in seconds of compute time. `took_seconds` and the relative `error` are None if `why_not` is set."""

    job: str
    short: str = ""
    name: str | None = None
    project: str = ""
    status: str = ""
    framework: str | None = None
    backend: str = ""
    instance_type: str = ""
    gpu: str | None = None
    analytic_seconds: float = 0.0
    predicted_seconds: float = 0.0
    took_seconds: float | None = None
    error: float | None = None
    why_not: str | None = None
    made_at: str | None = None

    @property
    def display_name(self) -> str:
        return self.name or self.short


class PredictionPage(View):
    items: tuple[PredictionView, ...] = ()
    next: str | None = None
    accuracy: AccuracyView = AccuracyView()
