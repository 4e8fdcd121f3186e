"""The catalog over the API, as the client reads it."""

from __future__ import annotations

import pytest
from tests.client.real_server import RealServer
from tests.server.app import TOKEN

from crucible.client.api import Api
from crucible.client.sdk.blocking import SyncMLPlatform
from crucible.client.sdk.platform import MLPlatform
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, NotFound, UnknownName

pytestmark = pytest.mark.enable_socket


def test_a_page_of_offers_is_typed(real_api: Api) -> None:
    page = real_api.catalog.page(OfferFilter(gpu="H100", gpus=8, market=("on_demand",)), limit=3)
    assert len(page.items) == 3 < page.total
    offer = page.items[0]
    assert offer.capacity.gpu_name.startswith("H100")
    assert (offer.market, offer.runnable) == (Market.ON_DEMAND, False)
    assert offer.tariff.source.startswith("https://")
    assert offer.billing.granularity >= 1
    assert page.oldest_days is not None


def test_walking_finds_all_of_them(real_api: Api, real: RealServer) -> None:
    wanted = OfferFilter(provider=("aws", "gcp"))
    found = list(real_api.catalog.walk(wanted))
    assert len(found) == real_api.catalog.page(wanted, limit=1).total > 1000
    assert len([path for _, path in real.requests if path == "/api/v1/catalog"]) > 2


def test_sizes_of_a_filter_arrive(real_api: Api) -> None:
    found = list(real_api.catalog.walk(OfferFilter(gpu_memory="80GB", memory="1.5TB", max_price=60.0)))
    assert found
    assert all(offer.capacity.gpu_memory_bytes >= 80 * 1024**3 for offer in found)
    assert all(offer.rate_micros_per_hour <= 60_000_000 for offer in found)


def test_a_type_its_gpu_and_the_audit(real_api: Api) -> None:
    shown = real_api.catalog.type("n1-standard-8+1xV100")
    assert shown.gpu is not None
    assert shown.gpu.name == "V100-16GB"
    assert {gpu.name for gpu in real_api.catalog.gpus()} >= {"T4", "H100-SXM"}
    audit = real_api.catalog.audit()
    assert (audit.refused, audit.items[0].rule) == (0, "old")


def test_names_that_nobody_knows_are_their_errors(real_api: Api) -> None:
    with pytest.raises(UnknownName, match="A1000"):
        real_api.catalog.page(OfferFilter(gpu="A1000"))
    with pytest.raises(NotFound, match="Did you mean"):
        real_api.catalog.type("g4dn.xlrge")


def test_a_table_is_sent_and_compared(real_api: Api) -> None:
    found = real_api.catalog.compare(b"InstanceType,Region,Price\ng4dn.xlarge,us-east-1,0.4\n", over=5)
    assert (found.provider, found.matched, found.differences[0].percent) == ("aws", 1, 31.5)
    with pytest.raises(BadInput, match="no column"):
        real_api.catalog.compare(b"nonsense")


async def test_both_platforms_ask_for_it(real: RealServer) -> None:
    wanted = OfferFilter(type="g4dn.xlarge")
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        found = platform.catalog(wanted)
    async with MLPlatform(real.url, token=TOKEN) as platform_:
        assert await platform_.catalog(wanted) == found
    assert {offer.instance_type for offer in found} == {"g4dn.xlarge"}
