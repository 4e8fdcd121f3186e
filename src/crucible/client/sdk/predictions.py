"""What was predicted of jobs beside what they took, as the server tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from crucible.core.views.predictions import PredictionPage, PredictionView

if TYPE_CHECKING:
    from crucible.client.api import Api

PAGE = 500


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
