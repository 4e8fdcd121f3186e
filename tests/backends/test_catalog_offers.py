"""Offers from the prices that are shipped."""

from __future__ import annotations

import pytest
from tests.catalog.builders import make_row

from crucible.backends.catalog_offers import catalog_offers
from crucible.backends.context import shipped_catalog
from crucible.backends.offers import MOST_NEAREST, MOST_OFFERS
from crucible.catalog import PROVIDERS, Catalog
from crucible.core.compute.offers import Market, Need
from crucible.core.compute.resources import GiB, Resources

CATALOG = shipped_catalog()


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) & set(CATALOG.providers())))
def test_offers_are_few_priced_dated_and_cheapest_first(provider: str) -> None:
    offers = catalog_offers(CATALOG, provider, Need())
    assert 0 < len(offers) <= MOST_OFFERS
    assert all(offer.backend == provider and offer.rate > 0 and offer.dated and offer.runnable for offer in offers)
    assert [offer.rate for offer in offers] == sorted(offer.rate for offer in offers)
    assert len({(offer.instance_type, offer.market) for offer in offers}) == len(offers)
    assert {offer.market for offer in offers} <= {Market.ON_DEMAND, Market.SPOT}


def test_every_offer_holds_the_need() -> None:
    need = Resources(cpus=8, memory_bytes=32 * GiB, gpus=1, gpu_memory_bytes=16 * GiB)
    offers = catalog_offers(CATALOG, "aws", Need(need), limit=5)
    assert len(offers) == 5
    for offer in offers:
        size = offer.capacity
        assert size.cpus >= 8
        assert size.memory_bytes >= 32 * GiB
        assert size.gpus
        assert size.gpu_memory_bytes >= 16 * GiB


def test_markets_regions_and_types_of_gpu_limit_the_offers() -> None:
    offers = catalog_offers(CATALOG, "aws", Need(regions=("us-east", "nowhere"), markets=(Market.SPOT,)))
    assert {offer.market for offer in offers} == {Market.SPOT}
    assert {offer.region.startswith("us-east") for offer in offers} == {True}
    assert catalog_offers(CATALOG, "aws", Need(regions=("nowhere",))) == []
    offers = catalog_offers(CATALOG, "aws", Need(Resources(gpus=1), gpu_types=("T4",)))
    assert {offer.capacity.gpu_name for offer in offers if offer.runnable} == {"T4"}


def test_a_region_whose_name_is_longer_is_another_one() -> None:
    catalog = Catalog([make_row(region="eastus", on_demand=0.6), make_row(region="eastus2", on_demand=0.5)])
    (offer,) = catalog_offers(catalog, "aws", Need(Resources(gpus=1), regions=("eastus",)), limit=1)
    assert offer.region == "eastus"


def test_if_nothing_fits_the_nearest_say_what_they_lack() -> None:
    offers = catalog_offers(CATALOG, "lambda", Need(Resources(gpus=64)))
    assert len(offers) == MOST_NEAREST
    most = max(len(offer.capacity.gpus) for offer in catalog_offers(CATALOG, "lambda", Need(), limit=1000))
    assert {len(offer.capacity.gpus) for offer in offers} == {most}
    assert all("64 GPUs" in offer.why_not for offer in offers)


def test_a_provider_without_prices_has_no_offers() -> None:
    assert catalog_offers(CATALOG, "nowhere", Need()) == []
