"""The index answers as a plain filter over all offers does, only quicker."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.builders import make_row

from crucible.catalog.index import ANYTHING, Catalog, Need, sort_key
from crucible.catalog.store import shipped
from crucible.core.compute.gpus import find_gpus, names
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import GiB
from crucible.core.errors import UnknownName


@cache
def everything() -> Catalog:
    return Catalog(shipped().rows)


def fits(need: Need, offer: Offer) -> bool:
    """The same question, asked of one offer."""
    capacity = offer.capacity
    return (
        (need.gpu is None or capacity.gpu_name in {one.name for one in find_gpus(need.gpu)})
        and len(capacity.gpus) >= need.gpus
        and capacity.gpu_memory_bytes >= need.gpu_memory_bytes
        and capacity.cpus >= need.vcpus
        and capacity.memory_bytes >= need.memory_bytes
        and (not need.providers or offer.backend in need.providers)
        and (not need.regions or offer.region in need.regions)
        and (not need.markets or offer.market in need.markets)
        and (need.instance_type is None or offer.instance_type == need.instance_type)
        and (need.max_rate is None or offer.rate <= need.max_rate)
    )


needs = st.builds(
    Need,
    gpu=st.none() | st.sampled_from(names()),
    gpus=st.sampled_from([0, 0, 1, 2, 4, 8, 16, 17]),
    gpu_memory_bytes=st.sampled_from([0, 0, 1, 8 * GiB, 16 * GiB, 24 * GiB, 80 * GiB, 81 * GiB, 999 * GiB]),
    vcpus=st.sampled_from([0.0, 0.0, 1.0, 4.0, 7.5, 96.0, 5000.0]),
    memory_bytes=st.sampled_from([0, 0, 16 * GiB, 16 * GiB + 1, 512 * GiB]),
    providers=st.lists(st.sampled_from(("aws", "gcp", "azure", "lambda", "modal")), max_size=2).map(tuple),
    regions=st.lists(st.sampled_from(("us-east-1", "us-central1", "eastus", "any")), max_size=2).map(tuple),
    markets=st.lists(st.sampled_from(list(Market)), max_size=2).map(tuple),
    instance_type=st.none() | st.none() | st.sampled_from(("g4dn.xlarge", "a2-highgpu-1g", "H100:8")),
    max_rate=st.none() | st.sampled_from([0, 1, 526_000, 3_060_000, 10**9]),
)


@settings(max_examples=400, deadline=None)
@given(needs)
def test_it_finds_what_a_plain_filter_finds(need: Need) -> None:
    catalog = everything()
    expected = [offer for offer in catalog.offers() if fits(need, offer)]
    assert catalog.offers(need) == expected
    assert catalog.count(need) == len(expected)


@settings(max_examples=50, deadline=None)
@given(needs, st.integers(min_value=1, max_value=60))
def test_pages_put_together_are_the_whole(need: Need, size: int) -> None:
    catalog = everything()
    whole = catalog.offers(need)
    paged: list[Offer] = []
    while page := catalog.offers(need, after=sort_key(paged[-1]) if paged else None, limit=size):
        paged += page
        if len(paged) > 5 * size:
            break
    assert paged == whole[: len(paged)]


def test_the_cheapest_comes_first() -> None:
    rates = [offer.rate for offer in everything().offers(Need(gpu="A100"))]
    assert rates == sorted(rates)
    assert len(rates) > 20


def test_each_price_is_an_offer() -> None:
    catalog = Catalog([make_row(spot=0.2, reserved_1y=0.33, reserved_3y=0.23)])
    found = [(offer.market, offer.rate, offer.tariff.commitment_years) for offer in catalog.offers()]
    assert found == [
        (Market.SPOT, 200_000, 0),
        (Market.RESERVED, 230_000, 3),
        (Market.RESERVED, 330_000, 1),
        (Market.ON_DEMAND, 526_000, 0),
    ]


def test_an_offer_says_what_holds_for_its_price() -> None:
    (offer,) = Catalog([make_row(on_demand=None, spot=0.2, interruption="5-10%")]).offers()
    assert (offer.billing.granularity, offer.billing.minimum) == (1, 60)
    assert offer.capacity.gpus == (0,)
    assert offer.capacity.gpu_memory_bytes == 16 * GiB
    assert offer.tariff.interruption == (0.05, 0.10)
    assert offer.tariff.dedicated is True
    assert offer.tariff.egress_per_gb == 90_000
    assert offer.tariff.source.startswith("https://")
    assert offer.dated == "2025-09-01"
    assert offer.startup_seconds > 0


def test_only_spot_is_taken_back() -> None:
    (offer,) = Catalog([make_row(interruption="5-10%")]).offers()
    assert offer.tariff.interruption is None


@pytest.mark.parametrize(
    ("need", "meant"),
    [
        (Need(gpu="A1000"), "A100"),
        (Need(providers=("aw",)), "aws"),
        (Need(regions=("us-east-11",)), "us-east-1"),
        (Need(instance_type="g4dn.xlrge"), "g4dn.xlarge"),
    ],
)
def test_a_name_that_nobody_offers_gets_the_nearest(need: Need, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        everything().offers(need)
    assert caught.value.meant == meant


def test_an_empty_catalog_has_nothing() -> None:
    assert Catalog([]).offers(Need(gpus=1)) == []
    assert Catalog([]).count(ANYTHING) == 0


@pytest.mark.quiet
def test_a_question_over_the_whole_catalog_is_quick() -> None:
    catalog = everything()
    catalog.offers(Need(gpu="A100"))
    began = time.process_time()
    for _ in range(10):
        catalog.offers(Need(gpus=1, gpu_memory_bytes=16 * GiB, max_rate=5_000_000))
        catalog.offers()
    assert (time.process_time() - began) / 20 < 0.010
