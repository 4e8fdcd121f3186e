"""Which offers fit a job, and what a machine made for it gives it."""

from __future__ import annotations

from typing import Any

import pytest

from crucible.core.compute.offers import Market, Node, Offer
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling.fit import allocate_whole_machine, why_never, wrong_gpu

SMALL = Capacity(cpus=2, memory_bytes=4 * GiB)
LARGE = Capacity(cpus=16, memory_bytes=64 * GiB, gpus=(0, 1, 2, 3), gpu_memory_bytes=16 * GiB, gpu_name="T4")


def offer(rate: int = 100, capacity: Capacity = SMALL, region: str = "north-1", **more: Any) -> Offer:
    return Offer("cloud", region, f"type-{capacity.cpus:g}", capacity, rate, **more)


def node(region: str = "here") -> Offer:
    return offer(0, region=region, node=Node("node-1", "this computer"))


def job(resources: Resources | None = None, **more: Any) -> JobSpec:
    return JobSpec.model_validate({"command": ("true",), "resources": resources or Resources(), **more})


def test_a_job_without_wishes_fits_any_machine() -> None:
    assert why_never(job(), offer()) == ""
    assert why_never(job(), node()) == ""


@pytest.mark.parametrize(
    ("market", "offered", "words"),
    [
        (None, Market.ON_DEMAND, ""),
        (None, Market.SPOT, "wants on_demand; type-2 is spot"),
        ("spot", Market.SPOT, ""),
        ("spot", Market.ON_DEMAND, "wants spot; type-2 is on_demand; with --spot-fallback it could run on demand"),
        ("reserved", Market.ON_DEMAND, "wants reserved; type-2 is on_demand"),
    ],
)
def test_only_the_market_that_is_asked_for(market: str | None, offered: Market, words: str) -> None:
    assert why_never(job(market=market), offer(market=offered)) == words


@pytest.mark.parametrize("market", list(Market))
def test_what_does_not_bill_satisfies_every_market(market: Market) -> None:
    assert why_never(job(market=market), offer(0)) == ""
    assert why_never(job(market=market), node()) == ""


def test_a_fallback_from_spot_is_a_candidate_of_its_own() -> None:
    spec = job(market="spot", spot_fallback=True)
    assert why_never(spec, offer(), Market.ON_DEMAND) == ""
    assert why_never(spec, offer(market=Market.SPOT), Market.SPOT) == ""
    assert why_never(spec, offer(), Market.SPOT) == "wants spot; type-2 is on_demand", "it has the option already"


def test_only_the_regions_that_are_asked_for() -> None:
    assert why_never(job(regions=("south",)), offer(region="south-2")) == ""
    assert why_never(job(regions=("west", "south")), offer()) == "wants west or south; type-2 is in north-1"


def test_a_node_is_in_no_region() -> None:
    assert why_never(job(backend="cloud", regions=("south",)), node()) == "wants south; cloud is in no region"
    beside = job(backend="aws", fallback=("cloud",), regions=("south",))
    assert why_never(beside, node()) == "", "the region was meant for the other backend"
    assert why_never(job(backend="cloud", regions=("here",)), node()) == "", "its own backend calls it that"


def test_the_type_of_the_gpu() -> None:
    assert wrong_gpu((), offer()) == ""
    spec = job(Resources(gpus=1), gpu_types=("T4",))
    assert why_never(spec, offer(capacity=LARGE)) == ""
    other = job(Resources(gpus=1), gpu_types=("H100",))
    assert why_never(other, offer(capacity=LARGE)).endswith("; type-16 has T4")
    assert why_never(other, offer()).endswith("; type-2 has no GPU")


def test_too_large_says_what_is_missing() -> None:
    assert why_never(job(Resources(gpus=8)), offer(capacity=LARGE)) == "asks for 8 GPUs; type-16 has 4"


def test_what_could_hold_it_later_is_not_never() -> None:
    assert why_never(job(), offer(why_not="sold out")) == ""


def test_a_machine_made_for_an_attempt_is_all_its_own() -> None:
    slots = allocate_whole_machine(job(Resources(cpus=1, gpus=2)), offer(900, LARGE))
    assert (slots.cpus, slots.memory_bytes, slots.gpus, slots.seconds) == (16, 64 * GiB, (0, 1), None)


def test_the_budget_limits_the_time_on_the_chosen_machine() -> None:
    dear, cheap = offer(7_200_000), offer(3_600_000, region="north-2")
    wanted = job(max_cost_usd=0.06)
    assert (allocate_whole_machine(wanted, dear).seconds, allocate_whole_machine(wanted, cheap).seconds) == (30, 60)


def test_more_than_the_budget_never_fits() -> None:
    dear, cheap = offer(7_200_000), offer(3_600_000, region="north-2")
    some, none = job(max_cost_usd=0.0015), job(max_cost_usd=0.0005)
    assert [why_never(some, each) == "" for each in (dear, cheap)] == [False, True]
    assert why_never(none, dear) == "would cost $0.002 at least, more than $0.0005"
