"""The router's choice: request first, then what fits, then the objective; the same offers, the same plan."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.core.routing.market import FIRST_HOUR, HOUR, KNOWN, asked, at, offer, sized, spot, taken_back, work

from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import GiB, Resources
from crucible.core.errors import BadInput
from crucible.core.routing.plan import Plan, route
from crucible.core.routing.plan_request import Objective, PlanRequest
from crucible.core.routing.profile import GpuNeed, HostMemory
from crucible.core.routing.pros_and_cons import fit
from crucible.core.routing.rejections import NOT_SPOT
from crucible.core.routing.workload import ComputeTime, GpuMemory, Workload

LOCAL = offer("local/here/pc", 0.0, "T4", startup_seconds=1.0)
MODAL = at(offer("modal/us/t4", 0.59, "T4", startup_seconds=5.0), dedicated=False)
LAMBDA = offer("lambda/us-west-1/a100", 1.79, "A100", startup_seconds=240.0)
XLARGE = taken_back(offer("aws/us-east-1/g4dn.xlarge", 0.526, startup_seconds=400.0, billing=FIRST_HOUR), 0.05)
SPOT = spot(XLARGE, 0.3)
EIGHT = offer("aws/us-east-1/p4d", 32.77, "A100", 8, startup_seconds=400.0)
ALL = (LOCAL, MODAL, LAMBDA, XLARGE, SPOT, EIGHT)
PAID = ALL[1:]
CLOUDS = ("modal", "lambda", "aws")


def plan(job: Workload, request: PlanRequest | None = None, among: tuple[Offer, ...] = ALL) -> Plan:
    return route(job, request or asked(), among, KNOWN)


def best(found: Plan) -> str:
    return found.ranked[0].offer.instance_type


def whys(found: Plan) -> dict[str, str]:
    return {f"{one.offer.backend} {one.offer.instance_type} {one.offer.market}": one.why for one in found.rejected}


def test_here_is_free_and_wins_by_cost() -> None:
    found = plan(work())
    assert best(found) == "pc"
    assert "free" in found.ranked[0].pros
    assert found.ranked[0].score == 1.0


def test_here_loses_when_it_would_be_late() -> None:
    found = plan(work(8.0), asked(deadline_hours=3))
    assert best(found) == "a100"
    assert whys(found)["local pc on_demand"] == "would be done in 8h 00m, 5h 00m too late"


def test_here_loses_when_it_cannot_hold_the_job() -> None:
    assert best(plan(work(memory=40))) == "a100"


def test_speed_wants_the_soonest_end() -> None:
    assert best(plan(work(4.0), asked(optimize=Objective.SPEED))) == "a100"


def test_speed_of_a_short_job_is_the_start() -> None:
    assert best(plan(work(0.02), asked(optimize=Objective.SPEED), PAID)) == "t4"


def test_the_cheapest_that_meets_the_deadline() -> None:
    request = asked(optimize=Objective.DEADLINE, deadline_hours=2)
    found = plan(work(4.0), request, PAID)
    assert best(found) == "a100"
    assert "too late" in whys(found)["modal t4 on_demand"]


def test_balanced_lies_between() -> None:
    slow = offer("a/r/slow", 0.5, "T4")
    middle = offer("a/r/middle", 2.2, "A10G")
    fast = offer("a/r/fast", 40.0, "A100")
    among = (slow, middle, fast)
    chosen = {o: best(plan(work(10.0), asked(optimize=o), among)) for o in list(Objective)[:3]}
    assert chosen == {Objective.COST: "slow", Objective.SPEED: "fast", Objective.BALANCED: "middle"}


def test_an_explicit_choice_wins_over_everything() -> None:
    found = plan(work(), asked(backend="lambda"))
    assert [one.offer.backend for one in found.ranked] == ["lambda"]
    assert whys(found)["local pc on_demand"] == "is not on lambda, the only backend allowed"


@pytest.mark.parametrize(
    ("wanted", "left", "why"),
    [
        (
            asked(allowed_backends=("modal", "lambda")),
            {"modal", "lambda"},
            "is not on modal or lambda, the only backends allowed",
        ),
        (asked(regions=("us-",)), {"lambda", "aws"}, "is in here, not in us-"),
        (asked(gpu_types=("A100",)), {"lambda", "aws"}, "has T4, not A100"),
        (asked(max_cost_usd=0), {"local"}, "would cost $"),
        (asked(dedicated=True), {"local", "lambda", "aws"}, "only dedicated ones"),
    ],
)
def test_filters_keep_their_reason(wanted: PlanRequest, left: set[str], why: str) -> None:
    found = plan(work(), wanted)
    assert {one.offer.backend for one in found.ranked} == left
    assert any(why in text for text in whys(found).values())
    assert len(found.ranked) + len(found.rejected) == len(ALL)


def test_spot_only_for_what_may_be_interrupted() -> None:
    assert "may not be interrupted" in whys(plan(work()))["aws g4dn.xlarge spot"]
    allowed = plan(work(20.0, interruptible=True, checkpoint_seconds=1800.0), among=PAID)
    assert (allowed.ranked[0].offer.market, best(allowed)) == (Market.SPOT, "g4dn.xlarge")
    assert "continues from checkpoints after interruptions" in allowed.ranked[0].pros
    assert "70% below the on-demand price" in allowed.ranked[0].pros


def test_a_job_that_waits_for_spot_is_told_what_lets_it_run_on_demand() -> None:
    found = plan(work(interruptible=True), asked(market=Market.SPOT))
    assert [one.offer.instance_type for one in found.ranked] == ["pc", "g4dn.xlarge"]
    assert whys(found)["modal t4 on_demand"] == NOT_SPOT
    assert "--spot-fallback" in NOT_SPOT
    large = plan(work(memory=40, interruptible=True), asked(market=Market.SPOT))
    assert whys(large)["lambda a100 on_demand"] == NOT_SPOT
    assert whys(large)["modal t4 on_demand"] != NOT_SPOT, "another market would not help"


def test_with_the_fallback_on_demand_comes_last_however_cheap_it_is() -> None:
    prefers_spot = asked(market=Market.SPOT, spot_fallback=True)
    dear = spot(XLARGE, 0.9)
    found = plan(work(interruptible=True), prefers_spot, (MODAL, LAMBDA, LOCAL, XLARGE, dear))
    assert [one.offer.market for one in found.ranked[1:]] == [Market.SPOT, *[Market.ON_DEMAND] * 3]
    assert [one.is_fallback for one in found.ranked] == [False, False, True, True, True]
    assert max(one.score for one in found.ranked) == 1.0
    assert "10% below the on-demand price" in found.ranked[1].pros


def test_spot_that_is_taken_back_all_the_time_is_not_cheap() -> None:
    storm = taken_back(spot(XLARGE, 0.9), 3.0)
    found = plan(work(4.0, interruptible=True), among=(XLARGE, storm))
    assert found.ranked[0].offer.market is Market.ON_DEMAND


def test_a_market_that_was_wished_for() -> None:
    found = plan(work(interruptible=True), asked(market=Market.SPOT))
    assert [one.offer.backend for one in found.ranked if one.offer.market is not Market.SPOT] == ["local"]


def test_a_job_that_nobody_can_hold_is_shown_the_nearest() -> None:
    found = plan(work(memory=200))
    assert found.ranked == ()
    assert found.nearest is not None
    assert found.nearest.offer.instance_type == "a100"
    assert found.nearest.why == "asks for GPUs with 200 GiB; a100 has 80 GiB on each"


def test_more_gpus_than_there_are() -> None:
    many = Workload(Resources(gpus=16), GpuNeed.REQUIRED, ComputeTime(HOUR, "T4"))
    found = plan(many)
    assert found.nearest is not None
    assert found.nearest.offer.instance_type == "p4d"


def test_the_nearest_is_what_was_wished_for_if_that_is_all_that_is_wrong() -> None:
    found = plan(work(), asked(gpu_types=("A100",), market=Market.RESERVED))
    assert found.nearest is not None
    assert found.nearest.offer.instance_type == "a100"


def test_the_nearest_in_price_is_the_least_in_all_not_by_the_hour() -> None:
    """A T4 is the cheapest by the hour, and takes eight times as long."""
    found = plan(work(20.0), asked(max_cost_usd=1), among=(XLARGE, LAMBDA))
    assert found.nearest is not None
    assert found.nearest.offer.instance_type == "a100"


def test_the_nearest_in_time_is_the_one_that_is_done_first() -> None:
    found = plan(work(20.0), asked(deadline_hours=1), among=(XLARGE, LAMBDA, EIGHT))
    assert found.nearest is not None
    assert found.nearest.why.startswith("would be done in 2h 34m, 1h 34m too late")


def test_nothing_at_all_is_offered() -> None:
    assert plan(work(), among=()) == Plan((), ())


def test_a_place_that_is_not_connected_is_no_candidate() -> None:
    unconnected = replace(LAMBDA, why_not="connect it: crucible backends connect lambda")
    found = plan(work(), among=(unconnected,))
    assert (found.ranked, found.rejected, found.nearest) == ((), (), None)
    [other] = found.unconnected
    assert (other.offer.runnable, other.offer.why_not) == (False, "connect it: crucible backends connect lambda")
    assert other.estimate.total == plan(work(), among=(LAMBDA,)).ranked[0].estimate.total


def test_what_binds_for_years_is_asked_for_by_name() -> None:
    bound = replace(LAMBDA, market=Market.RESERVED, rate=1)
    assert plan(work(), among=(LAMBDA, bound)).ranked[0].offer is LAMBDA
    assert "is a commitment for years" in whys(plan(work(), among=(LAMBDA, bound)))["lambda a100 reserved"]
    assert best(plan(work(), asked(market=Market.RESERVED), (LAMBDA, bound))) == "a100"


def test_a_gpu_that_it_would_use_has_to_hold_it() -> None:
    large = Workload(Resources(gpu_memory_bytes=40 * GiB), GpuNeed.OPTIONAL, ComputeTime(HOUR, "T4"))
    found = plan(large, among=(LOCAL, LAMBDA, replace(offer("pool/here/cpu", 0.0, "", 0))))
    assert {one.offer.backend for one in found.ranked} == {"lambda", "pool"}
    assert "has 16 GiB of GPU memory; the job would use 40 GiB" in whys(found).values()


def test_without_a_gpu_the_memory_of_the_machine_has_to_hold_it() -> None:
    here = offer("local/here/pc", 0.0, "")
    large = Workload(Resources(), GpuNeed.OPTIONAL, model_bytes=33 * GiB)
    found = plan(large, among=(here, LAMBDA))
    assert (best(found), whys(found)["local pc on_demand"]) == (
        "a100",
        "has 32 GiB of memory; the job would take 33 GiB without a GPU",
    )
    assert best(plan(replace(large, model_bytes=32 * GiB), among=(here, LAMBDA))) == "pc"


def test_what_a_program_takes_of_memory_has_to_be_there_with_a_gpu_and_without() -> None:
    host = HostMemory(base=GiB, data=30 * GiB, workers=2 * GiB)
    here, large = offer("local/here/pc", 0.0, ""), sized(offer("aws/east/r5", 0.5, ""), 64)
    program = Workload(Resources(), GpuNeed.NONE, host=host)
    found = plan(program, among=(here, large))
    assert (best(found), whys(found)["local pc on_demand"]) == ("r5", "has 32 GiB of memory; the job would take 33 GiB")
    assert fit(program, large) == "good: 33.0 of 64 GiB"
    on_gpus = work(host=host)
    assert [one.offer.backend for one in plan(on_gpus, among=(LAMBDA, sized(XLARGE, 64))).ranked] == ["aws"]


def test_each_process_of_a_gpu_takes_its_own_memory() -> None:
    four = replace(work(host=HostMemory(base=10 * GiB)), need=Resources(gpus=4))
    machine = offer("aws/east/g4", 4.0, gpus=4)
    assert plan(four, among=(machine,)).ranked
    found = plan(replace(four, process_per_gpu=True), among=(machine, sized(machine, 40)))
    assert whys(found).popitem()[1] == "has 32 GiB of memory; the job would take 40 GiB"
    assert found.ranked


ONE, FOUR = offer("aws/east/g4-1", 1.0), offer("aws/east/g4-4", 4.0, gpus=4)


def test_a_program_that_shares_its_work_is_told_for_as_many_gpus_as_an_offer_has() -> None:
    several = replace(work(8.0), spread=True, process_per_gpu=True)
    cheap, quick = plan(several, among=(ONE, FOUR)), plan(several, asked(optimize=Objective.SPEED), (ONE, FOUR))
    assert (best(cheap), best(quick)) == ("g4-1", "g4-4")
    seconds = {one.offer.instance_type: one.estimate.seconds for one in quick.ranked}
    assert seconds == {"g4-1": 8 * HOUR, "g4-4": pytest.approx(8 * HOUR / 3.7)}


def test_what_is_assumed_of_the_number_of_gpus_is_said() -> None:
    several = replace(work(8.0), spread=True, process_per_gpu=True)
    words = {one.offer.instance_type: " ".join(one.cons) for one in plan(several, among=(ONE, FOUR)).ranked}
    assert "estimated for one GPU; it could share its work among several" in words["g4-1"]
    assert "estimated for one process on each of 4 GPUs; unless it starts them itself" in words["g4-4"]
    itself = plan(replace(several, process_per_gpu=False), among=(FOUR,)).ranked[0].cons
    assert "estimated for all 4 GPUs, which would share its work" in itself
    assert not any("estimated for" in word for word in plan(work(8.0), among=(ONE,)).ranked[0].cons)


def test_steps_that_are_counted_out_do_not_become_fewer_with_more_gpus() -> None:
    """Each GPU does all of them; who wants it soon gains nothing by paying for four."""
    fixed = replace(work(8.0), spread=True, compute=replace(work(8.0).compute or ComputeTime(0), shared=False))
    found = plan(fixed, asked(optimize=Objective.SPEED), (ONE, FOUR))
    assert {one.estimate.seconds for one in found.ranked} == {8 * HOUR}
    words = {one.offer.instance_type: " ".join(one.cons) for one in found.ranked}
    assert "that each run all of its steps" in words["g4-4"]


def test_what_is_split_over_gpus_is_judged_by_the_gpus_that_an_offer_has() -> None:
    sharded = replace(work(8.0), need=Resources(gpus=2), spread=True, on_gpus=GpuMemory(56 * GiB, 48 * GiB))
    found = plan(sharded, among=(ONE, FOUR, offer("aws/east/g4-8", 8.0, gpus=8)))
    assert [one.offer.instance_type for one in found.ranked] == ["g4-8"]
    assert "14.0 of 16 GiB" in fit(sharded, found.ranked[0].offer)
    assert any("asks for GPUs with 56 GiB" in one.why for one in found.rejected)
    maybe = replace(sharded, need=Resources(), gpu=GpuNeed.OPTIONAL, spread=False)
    assert "the job would use 56 GiB" in plan(maybe, among=(ONE,)).rejected[0].why


def test_an_offer_that_does_not_tell_its_memory_is_not_shut_out_for_it() -> None:
    assert plan(work(host=HostMemory(base=GiB)), among=(sized(LAMBDA, 0),)).ranked


def test_when_nothing_has_the_memory_the_nearest_has_most_of_it() -> None:
    program = Workload(Resources(), GpuNeed.NONE, host=HostMemory(data=100 * GiB))
    found = plan(program, among=(offer("aws/east/small", 0.1, ""), sized(offer("aws/east/large", 0.2, ""), 90)))
    assert found.nearest is not None
    assert found.nearest.offer.instance_type == "large"


def test_a_place_that_ends_its_machines_is_none_for_what_takes_longer_and_keeps_nothing() -> None:
    day = at(offer("colab/any/t4", 0.18), longest_seconds=24 * HOUR)
    assert best(plan(work(23.0), among=(day, XLARGE))) == "t4"
    found = plan(work(25.0), among=(day, XLARGE))
    assert best(found) == "g4dn.xlarge"
    why = "ends jobs after 1d 0h; the job takes 1d 1h and does not resume from checkpoints"
    assert whys(found)["colab t4 on_demand"] == why
    kept = plan(work(25.0, checkpoint_seconds=HOUR), among=(day, XLARGE))
    assert best(kept) == "t4"
    assert "moves to another machine every 1d 0h" in kept.ranked[0].cons


def test_a_job_of_unknown_length_goes_by_the_hour() -> None:
    found = plan(work(None), among=PAID)
    assert best(found) == "g4dn.xlarge"
    assert "its runtime is unknown, so the price is per hour" in found.ranked[0].cons


def test_the_order_of_the_offers_does_not_matter() -> None:
    among = [replace(c, region=f"{n}-{c.region}") for c in ALL for n in range(5)]
    wanted = plan(work(3.0, interruptible=True), among=tuple(among)).ranked
    for seed in range(10):
        random.Random(seed).shuffle(among)
        assert plan(work(3.0, interruptible=True), among=tuple(among)).ranked == wanted


def test_scores_fall_from_the_best_down() -> None:
    scores = [one.score for one in plan(work(), among=PAID).ranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0
    assert all(0 < score <= 1 for score in scores)


def test_a_ceiling_leaves_room_for_a_spot_price_that_rises() -> None:
    found = plan(work(2.0, interruptible=True), asked(market=Market.SPOT), PAID)
    [one] = found.ranked
    assert one.ceiling == int(one.offer.rate * 1.25)


def test_a_ceiling_keeps_within_what_it_may_cost() -> None:
    [free] = plan(work(2.0, interruptible=True), asked(market=Market.SPOT), PAID).ranked
    assert free.estimate.total is not None
    allowed = int(free.estimate.total * 1.1)
    bounded = asked(market=Market.SPOT, max_cost_usd=allowed / MICROS)
    [one] = plan(work(2.0, interruptible=True), bounded, PAID).ranked
    assert one.ceiling == pytest.approx(one.offer.rate * 1.1, rel=0.01)
    assert one.estimate.machine is not None
    assert one.estimate.machine * one.ceiling / one.offer.rate <= allowed


class TestDocuments:
    """The documents' rules are right on a market where their premises hold."""

    quick = offer("modal/us/t4", 1.10, startup_seconds=10.0)
    demand = offer("aws/us-east-1/g4dn.xlarge", 0.526, startup_seconds=450.0, billing=FIRST_HOUR)
    taken = taken_back(spot(demand, 0.3), 0.05)
    among = (quick, demand, taken)

    def test_a_quick_job_goes_to_a_service(self) -> None:
        assert plan(work(0.2), among=self.among).ranked[0].offer.backend == "modal"

    def test_a_long_job_goes_to_machines_of_its_own(self) -> None:
        assert plan(work(10.0), among=self.among).ranked[0].offer.backend == "aws"

    def test_who_looks_at_the_price_gets_spot(self) -> None:
        found = plan(work(5.0, interruptible=True, checkpoint_seconds=1800.0), among=self.among)
        assert found.ranked[0].offer.market is Market.SPOT

    def test_a_service_starts_sooner(self) -> None:
        found = plan(work(0.5), asked(optimize=Objective.SPEED), self.among)
        assert found.ranked[0].offer.backend == "modal"
        assert "starts within a minute" in found.ranked[0].pros

    @pytest.mark.parametrize(
        ("gpu_memory", "memory", "chosen"),
        [(8, 12, "g4dn.xlarge"), (16, 24, "g4dn.2xlarge"), (16, 40, "p3.2xlarge")],
    )
    def test_right_sizes(self, gpu_memory: int, memory: int, chosen: str) -> None:
        """A larger batch is more of the computer's own memory; beyond that a V100 with more of it."""
        sizes = [
            ("g4dn.xlarge", 0.526, "T4", 16),
            ("g4dn.2xlarge", 0.752, "T4", 32),
            ("p3.2xlarge", 3.06, "V100", 61),
        ]
        offers = [offer(f"aws/us-east-1/{kind}", price, gpu) for kind, price, gpu, _ in sizes]
        among = tuple(
            replace(one, capacity=one.capacity.model_copy(update={"memory_bytes": size[3] * GiB}))
            for one, size in zip(offers, sizes, strict=True)
        )
        need = Resources(gpus=1, gpu_memory_bytes=gpu_memory * GiB, memory_bytes=memory * GiB)
        asked = Workload(need, GpuNeed.REQUIRED, ComputeTime(10 * HOUR, ""))
        assert best(plan(asked, among=among)) == chosen


def test_money_is_whole() -> None:
    for one in plan(work(), among=PAID).ranked:
        assert isinstance(one.estimate.total, int)
        assert one.estimate.total < 100 * MICROS


def test_offers_that_share_a_size_each_tell_their_own_name_and_market() -> None:
    other = replace(EIGHT, instance_type="p4de")
    found = plan(work(need=Resources(gpus=16)), among=(EIGHT, other, spot(other, 1.0), EIGHT))
    assert [one.why for one in found.rejected] == [
        "asks for 16 GPUs; p4d has 8",
        "asks for 16 GPUs; p4de has 8",
        "may be reclaimed at any time, and the job may not be interrupted",
        "asks for 16 GPUs; p4d has 8",
    ]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (asked(optimize=Objective.DEADLINE), "needs a deadline"),
        (asked(market=Market.SPOT), "may not be interrupted"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_fix(wanted: PlanRequest, told: str) -> None:
    with pytest.raises(BadInput, match=told) as caught:
        plan(work(), wanted)
    assert caught.value.fix


def test_a_kind_of_gpu_and_no_gpu() -> None:
    with pytest.raises(BadInput, match="conflicts with --gpus 0"):
        plan(Workload(Resources()), asked(gpu_types=("A100",)))


@pytest.mark.parametrize(
    "wanted",
    [
        asked(),
        asked(optimize=Objective.DEADLINE, deadline_hours=1.0),
        asked(max_cost_usd=0),
        asked(allowed_backends=("aws",)),
        asked(gpu_types=("T4",)),
    ],
)
def test_what_can_be_asked_for(wanted: PlanRequest) -> None:
    plan(work(), wanted)


def test_spot_for_what_may_be_interrupted() -> None:
    plan(work(interruptible=True), asked(market=Market.SPOT))
