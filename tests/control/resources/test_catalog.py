"""Catalog as they are shown: paged, with their age, and with what connects those that cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalog.builders import make_row, usd
from tests.catalog.prices import make_prices
from tests.catalog.refresh.providers import FakeLambda, lambda_type, lambda_types
from tests.control.fakes import FakeBackend
from tests.server.openapi_contract import wrong_with_answer

from crucible.catalog import PROVIDERS, Library
from crucible.catalog.refresh import BadAnswer
from crucible.control.resources.catalog import Catalog, read_cursor, write_cursor
from crucible.control.scheduling.backends import why_unconnected
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import BadInput, NotFound, UnknownName
from crucible.core.people.identity import OWNER
from crucible.core.views.catalog import PriceView
from crucible.core.views.compute import BillingView


async def everything(prices: Catalog, wanted: OfferFilter, limit: int) -> list[PriceView]:
    found: list[PriceView] = []
    cursor = None
    while True:
        page = await prices.page(wanted, limit=limit, cursor=cursor)
        found += page.items
        assert len(page.items) <= limit
        cursor = page.next
        if cursor is None:
            return found


async def test_the_cheapest_come_first_with_all_that_is_known() -> None:
    page = await make_prices().page(
        OfferFilter(gpu="T4", provider=("aws",), market=("on-demand",)), limit=1, cursor=None
    )
    (offer,) = page.items
    assert (offer.instance_type, offer.region, offer.rate_micros_per_hour) == (
        "g4dn.xlarge",
        "us-east-1",
        526_000,
    )
    assert offer.capacity.gpu_name == "T4"
    assert offer.billing == BillingView(granularity=1, minimum=60)
    assert offer.tariff.dedicated is True
    assert offer.tariff.source.startswith("https://")
    assert (offer.dated, offer.age_days) == ("2025-09-01", 273)
    assert page.total > 100
    assert page.oldest_days > 180


async def test_pages_hold_every_offer_once() -> None:
    wanted = OfferFilter(gpu="A100")
    pages = await everything(make_prices(), wanted, 7)
    whole = (await make_prices().page(wanted, limit=500, cursor=None)).items
    assert tuple(pages) == whole
    assert len(whole) > 50


async def test_what_is_not_connected_cannot_run_and_says_so() -> None:
    prices = make_prices()
    for provider in PROVIDERS:
        offer = (await prices.page(OfferFilter(provider=(provider,)), limit=1, cursor=None)).items[0]
        assert offer.runnable is False
        assert offer.why == why_unconnected(provider)


async def test_what_is_connected_can_run() -> None:
    prices = make_prices(None, FakeBackend("aws"))
    offer = (await prices.page(OfferFilter(provider=("aws",)), limit=1, cursor=None)).items[0]
    assert (offer.runnable, offer.why) == (True, None)


async def test_a_type_is_shown_with_its_gpu_and_everywhere() -> None:
    shown = await make_prices().instance_type("p3.2xlarge")
    assert shown.gpu.name == "V100-16GB"
    assert {item.region for item in shown.items} >= {"us-east-1", "eu-west-1", "ap-northeast-1"}
    assert (await make_prices().instance_type("m6i.large")).gpu is None


async def test_an_unknown_type_is_not_found_and_gets_the_nearest() -> None:
    with pytest.raises(NotFound, match=r"g4dn\.xxlarge") as caught:
        await make_prices().instance_type("g4dn.xxlarge")
    assert "Did you mean 'g4dn" in caught.value.fix


@pytest.mark.parametrize(
    "wanted",
    [
        OfferFilter(gpu="A1000"),
        OfferFilter(provider=("local",)),
        OfferFilter(region=("mars-1",)),
        OfferFilter(type="x"),
    ],
)
async def test_names_that_nobody_knows_are_refused(wanted: OfferFilter) -> None:
    with pytest.raises(UnknownName) as caught:
        await make_prices().page(wanted, limit=1, cursor=None)
    assert caught.value.fix


@pytest.mark.parametrize("name", ["amazon", "local", "nimbus"])
async def test_a_provider_that_nobody_knows_is_refused_with_all_that_are_known(name: str) -> None:
    prices = make_prices()
    for asked in (prices.refresh(OWNER, name, ()), prices.page(OfferFilter(provider=(name,)), limit=1, cursor=None)):
        with pytest.raises(UnknownName) as caught:
            await asked
        assert caught.value.fix.count(", ".join(PROVIDERS)) == 1


async def test_the_audit_names_what_is_refused(tmp_path: Path) -> None:
    found = await make_prices(tmp_path).audit()
    assert (found.refused, found.day) == (0, "2026-06-01")
    Library(tmp_path).keep("aws", [make_row(on_demand=0)])
    found = await make_prices(tmp_path).audit()
    assert found.refused == 1
    assert [item.rule for item in found.items if item.refused] == ["zero"]
    assert found.offers == (await make_prices().audit()).offers


async def test_refreshed_prices_are_shown(tmp_path: Path) -> None:
    prices = make_prices(tmp_path)
    wanted = OfferFilter(type="g4dn.xlarge", region=("us-east-1",), market=("on_demand",))
    assert (await prices.page(wanted, limit=1, cursor=None)).items[0].rate_micros_per_hour == 526_000
    Library(tmp_path).keep("aws", [make_row(on_demand=0.51, dated="2026-05-31")])
    offer = (await prices.page(wanted, limit=1, cursor=None)).items[0]
    assert (offer.rate_micros_per_hour, offer.age_days) == (usd(0.51), 1)


async def test_a_clock_that_is_behind_does_not_empty_the_catalog() -> None:
    page = await make_prices(day=1_000_000_000.0).page(OfferFilter(), limit=1, cursor=None)
    assert page.total > 1500
    assert page.refused == 0


async def test_a_comparison_is_a_view() -> None:
    text = "InstanceType,Price,Region\ng4dn.xlarge,0.6,us-east-1\n"
    found = await make_prices().compare(OWNER, text, provider=None, over=0.1)
    assert (found.provider, found.matched, found.differences_count) == ("aws", 1, 1)


@pytest.mark.parametrize("cursor", ["", "x", "äö", "YzE6", "YzE6W10", "YzE6WzEsMiwzXQ", "ajE6am9iLTE", "a" * 200])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        read_cursor(cursor)


def test_a_cursor_is_read_back() -> None:
    key = (526_000, "aws", "us-east-1", "g4dn.xlarge", "on_demand", 0)
    assert read_cursor(write_cursor(key)) == key
    assert read_cursor(None) is None


async def test_a_refresh_says_what_came_of_it(tmp_path: Path) -> None:
    prices = make_prices(tmp_path, asked=FakeLambda({"gpu_1x_a10": lambda_type("gpu_1x_a10", 80, "A10 (24 GB PCIe)")}))
    with pytest.raises(BadAnswer, match="of 42 known instance types"):
        await prices.refresh(OWNER, "lambda", ())
    prices = make_prices(tmp_path, asked=FakeLambda(lambda_types(1.1)))
    found = await prices.refresh(OWNER, "lambda", ())
    assert (found.provider, found.rows, found.prices, found.changed) == ("lambda", 42, 42, 42)
    assert found.refused == 0
    assert list(wrong_with_answer("POST /api/v1/catalog/refresh", 200, found.model_dump_json().encode())) == []
    again = await prices.refresh(OWNER, "lambda", ())
    assert again.changed == 0
    page = await prices.page(OfferFilter(type="gpu_1x_a10"), limit=1, cursor=None)
    assert page.items[0].dated == "2026-06-01"
