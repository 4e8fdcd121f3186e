"""Predictions over the API, as the client reads them."""

from __future__ import annotations

import pytest
from tests.client.fake_server import TOKEN, FakeServer

from crucible.client.api import Api
from crucible.client.sdk.blocking import SyncMLPlatform
from crucible.client.sdk.platform import MLPlatform
from crucible.core.errors import BadInput

pytestmark = pytest.mark.enable_socket

TOLD = {"job": "job-1", "predicted_seconds": 90.0, "took_seconds": 120.0, "error": 0.25}
GOING = {"job": "job-2", "predicted_seconds": 90.0, "why_not": "it has not ended"}


def test_a_page_is_typed(api: Api, server: FakeServer) -> None:
    server.predictions = [GOING, TOLD]
    page = api.predictions(limit=1)
    assert page.next is not None
    (going,) = page.items
    assert (going.took_seconds, going.error, going.why_not) == (None, None, "it has not ended")
    (told,) = api.predictions(limit=1, cursor=page.next).items
    assert (told.took_seconds, told.error, told.why_not) == (120.0, 0.25, None)
    assert (page.accuracy.count, page.accuracy.close) == (1, 0.5)


async def test_both_platforms_have_the_newest_with_the_accuracy(server: FakeServer) -> None:
    server.predictions = [GOING, TOLD] * 400
    with SyncMLPlatform(server.url, token=TOKEN) as platform:
        found = platform.predictions(limit=701)
        with pytest.raises(BadInput):
            platform.predictions(limit=0)
    assert (len(found.items), found.next, found.accuracy.count) == (701, None, 400)
    async with MLPlatform(server.url, token=TOKEN) as platform_:
        assert await platform_.predictions(limit=701) == found
