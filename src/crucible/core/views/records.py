"""Records of a job: events, metrics, files."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes


class EventView(PartialView):
    n: int = 0
    type: str = ""
    at: str | float | None = None
    data: dict[str, object] = Field(default_factory=dict)
    cursor: int = sometimes(0)
    """Its position in the event feed of all jobs, and the `job` it belongs to; only in that feed."""
    job: str = sometimes("")


class EventPage(View):
    items: tuple[EventView, ...] = ()


class SeriesView(View):
    """One metric. A point is (step, value, time)."""

    count: int = 0
    last: float | None = None
    min: float | None = None
    max: float | None = None
    points: tuple[tuple[float | None, float | None, float | None], ...] = ()


class MetricsView(View):
    attempt: int | None = None
    series: dict[str, SeriesView] = Field(default_factory=dict)


class LogPage(View):
    """Bytes `start` to `next` of an attempt's output. `complete`: the attempt is over and nothing follows `next`."""

    attempt: int
    attempts: int
    start: int
    next: int
    complete: bool
    data: bytes


class ArtifactView(View):
    path: str
    size: int
    sha256: str
    attempt: int | None = None
    attempt_id: str = ""


class ArtifactPage(View):
    items: tuple[ArtifactView, ...] = ()
