"""What was predicted of jobs beside what they took, as the server tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from crucible.client.placeviews import AccuracyView
from crucible.client.views import View

if TYPE_CHECKING:
    from crucible.client.api import Api

PAGE = 500


class PredictionView(View):
    """Seconds of computing. `took_seconds` and `error`, a share of it, are None where `why_not` says why."""

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
    def called(self) -> str:
        return self.name or self.short


class PredictionPage(View):
    items: tuple[PredictionView, ...] = ()
    next: str | None = None
    accuracy: AccuracyView = AccuracyView()


def newest_predictions(api: Api, limit: int) -> PredictionPage:
    """At most `limit`, page by page, as one page."""
    first = api.predictions(limit=min(limit, PAGE))
    return first.model_copy(update={"items": tuple(islice(_walk(api, first), limit)), "next": None})


def _walk(api: Api, page: PredictionPage) -> Iterator[PredictionView]:
    while True:
        yield from page.items
        if page.next is None:
            return
        page = api.predictions(limit=PAGE, cursor=page.next)
