"""Predictions over the API, as the client reads them."""

from __future__ import annotations

import pytest
from tests.client.programs import train, training
from tests.client.real_server import RealServer
from tests.server.app import TOKEN

from crucible.client.api import Api
from crucible.client.sdk.blocking import SyncMLPlatform
from crucible.client.sdk.platform import MLPlatform
from crucible.core.errors import BadInput

pytestmark = pytest.mark.enable_socket


def test_a_page_is_typed(real_api: Api, real: RealServer) -> None:
    job = train(real, training(), 4 / 3)
    predicted = real.view(job).predicted_seconds
    real.submit_program(training())
    page = real_api.predictions(limit=1)
    assert page.next is not None
    (going,) = page.items
    assert (going.took_seconds, going.error, going.why_not) == (None, None, "it has not ended")
    (ended,) = real_api.predictions(limit=1, cursor=page.next).items
    assert (ended.predicted_seconds, ended.took_seconds) == (predicted, pytest.approx(predicted * 4 / 3))
    assert (ended.error, ended.why_not) == (0.25, None)
    assert (page.accuracy.count, page.accuracy.close) == (1, 0.0)


async def test_both_platforms_have_the_newest_with_the_accuracy(real: RealServer) -> None:
    train(real, training(1))
    jobs = [real.submit_program(training(1)).id for _ in range(6)]
    real.page = 2
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        found = platform.predictions(limit=5)
        with pytest.raises(BadInput):
            platform.predictions(limit=0)
    assert [one.job for one in found.items] == jobs[:0:-1]
    assert (found.next, found.accuracy.count) == (None, 1)
    async with MLPlatform(real.url, token=TOKEN) as platform_:
        assert await platform_.predictions(limit=5) == found
        assert len((await platform_.predictions(limit=701)).items) == 7
