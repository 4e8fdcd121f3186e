"""Which of a provider's offers a backend returns for a need."""

from __future__ import annotations

from crucible.backends.offers import MOST_NEAREST, choose_offers
from crucible.core.compute.offers import Market, Need, Offer
from crucible.core.compute.resources import Capacity, GiB, Resources


def offer(name: str, rate: int, gpus: int = 0, gpu: str = "", region: str = "eu-1", **more: object) -> Offer:
    has = Capacity(cpus=8 * max(gpus, 1), memory_bytes=32 * GiB, gpus=tuple(range(gpus)), gpu_name=gpu)
    return Offer("moon", region, name, has, rate, dated="2026-01-31", **more)  # type: ignore[arg-type]


SMALL = offer("c1", 200)
A10 = offer("a10", 1_000, 1, "NVIDIA A10")
T4 = offer("t4", 500, 1, "Tesla T4")
EIGHT = offer("a10x8", 8_000, 8, "NVIDIA A10")
SPOT = offer("a10", 400, 1, "NVIDIA A10", market=Market.SPOT)
AMERICAN = offer("a10", 900, 1, "NVIDIA A10", region="us-1")
ALL = (EIGHT, A10, SMALL, T4, SPOT, AMERICAN)


def test_what_fits_comes_cheapest_first() -> None:
    assert choose_offers(ALL, Need(Resources(gpus=1))) == [SPOT, T4, AMERICAN, A10, EIGHT]
    assert choose_offers(ALL, Need(Resources(gpus=1)), limit=2) == [SPOT, T4]


def test_types_of_gpu_regions_and_markets_are_kept_before_the_limit() -> None:
    assert choose_offers(ALL, Need(Resources(gpus=1), gpu_types=("T4",)), limit=1) == [T4]
    assert choose_offers(ALL, Need(Resources(gpus=1), regions=("us", "asia")), limit=1) == [AMERICAN]
    assert choose_offers(ALL, Need(Resources(gpus=2), markets=(Market.ON_DEMAND,)), limit=1) == [EIGHT]


def test_if_nothing_fits_the_nearest_say_what_they_lack() -> None:
    found = choose_offers(ALL, Need(Resources(gpus=64)))
    assert len(found) == MOST_NEAREST
    assert (found[0].instance_type, found[0].why_not) == ("a10x8", "asks for 64 GPUs; a10x8 has 8")


def test_what_is_sold_out_is_returned_only_if_nothing_fits() -> None:
    sold_out = offer("a10", 100, 1, "NVIDIA A10", why_not="sold out")
    assert choose_offers([sold_out, A10], Need(Resources(gpus=1))) == [A10]
    assert choose_offers([sold_out], Need(Resources(gpus=1))) == [sold_out]


def test_a_region_without_offers_has_none() -> None:
    assert choose_offers(ALL, Need(regions=("mars",))) == []
