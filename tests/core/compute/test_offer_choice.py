from __future__ import annotations

from crucible.core.compute.offer_choice import allocate_whole_machine, choose_offer, offer_kind
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.job.spec import JobSpec

SMALL = Capacity(cpus=2, memory_bytes=4 * GiB)
LARGE = Capacity(cpus=16, memory_bytes=64 * GiB, gpus=(0, 1, 2, 3), gpu_memory_bytes=16 * GiB)


def offer(rate: int, capacity: Capacity = SMALL, region: str = "north-1", **more: object) -> Offer:
    return Offer("cloud", region, f"type-{capacity.cpus:g}", capacity, rate, **more)  # type: ignore[arg-type]


def job(resources: Resources | None = None, **more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ("true",), "resources": resources or Resources(), **more})


def test_the_cheapest_that_fits() -> None:
    offers = [offer(300), offer(100), offer(200)]
    assert choose_offer(job(), offers).offer == offers[1]
    assert choose_offer(job(Resources(gpus=1)), [*offers, offer(900, LARGE)]).offer == offer(900, LARGE)


def test_what_can_be_taken_back_is_only_taken_when_asked_for() -> None:
    spot, safe = offer(10, market=Market.SPOT), offer(100)
    assert choose_offer(job(), [spot, safe]).offer == safe
    assert choose_offer(job(market=Market.SPOT), [spot, safe]).offer == spot


def test_only_the_regions_asked_for() -> None:
    near, far = offer(100, region="south-2"), offer(10, region="north-1")
    assert choose_offer(job(regions=("south",)), [near, far]).offer == near
    none = choose_offer(job(regions=("west",)), [near, far])
    assert none.offer is None
    assert "west" in none.why


def test_what_was_refused_lately_is_passed_over() -> None:
    cheap, other = offer(10), offer(20, region="north-2")
    failures = {offer_kind(cheap): 1}
    assert choose_offer(job(), [cheap, other], failures).offer == other
    again = choose_offer(job(), [cheap], failures)
    assert (again.offer, again.all_failed_before) == (cheap, True)
    tired = choose_offer(job(), [cheap, other], {offer_kind(cheap): 1, offer_kind(other): 2})
    assert (tired.offer, tired.all_failed_before) == (cheap, True), "the one that failed least often"


def test_sold_out_says_so() -> None:
    gone = offer(10, why_not="none left in north-1")
    assert choose_offer(job(), [gone]).why == "none left in north-1"
    assert choose_offer(job(), [offer(1, market=Market.SPOT), gone]).why == "none left in north-1"
    assert choose_offer(job(), []).why == "there are no offers at the moment"


def test_too_large_for_all_says_what_is_missing() -> None:
    why = choose_offer(job(Resources(gpus=8)), [offer(900, LARGE)]).why
    assert "8 GPUs" in why


def test_a_machine_of_its_own_is_all_its_own() -> None:
    slots = allocate_whole_machine(job(Resources(cpus=1, gpus=2)), offer(900, LARGE))
    assert (slots.cpus, slots.memory_bytes, slots.gpus, slots.seconds) == (16, 64 * GiB, (0, 1), None)


def test_money_is_time_on_the_machine_that_is_chosen() -> None:
    dear, cheap = offer(7_200_000), offer(3_600_000, region="north-2")
    wanted = job(max_cost_usd=0.06)
    assert (allocate_whole_machine(wanted, dear).seconds, allocate_whole_machine(wanted, cheap).seconds) == (30, 60)
    assert choose_offer(job(max_cost_usd=0.0015), [dear, cheap]).offer == cheap
    none = choose_offer(job(max_cost_usd=0.0005), [dear, cheap])
    assert (none.offer, none.why) == (None, "would cost $0.002 at least, more than $0.0005")
