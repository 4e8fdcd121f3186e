"""Which waiting job starts on what, and why another one waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.offers import Market, Need, Node, Nodes, Offer, OnDemand, ProviderQueue
from crucible.core.compute.resources import Allocation, Capacity, GiB, Resources
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling.candidates import Candidate, list_candidates
from crucible.core.scheduling.schedule import schedule
from crucible.core.scheduling.slots import UsedSlots
from crucible.core.scheduling.state import Failures, OfferKind, Start, State, Supply, Wait, WaitingJob

EIGHT = Capacity(cpus=8, memory_bytes=32 * GiB, gpus=(0, 1, 2, 3), gpu_memory_bytes=16 * GiB)
FOUR = Capacity(cpus=4, memory_bytes=16 * GiB)
NOW = 1000.0


def node(name: str, backend: str = "local", capacity: Capacity = EIGHT, **more: Any) -> Offer:
    """Return the offer of a node; nodes of the same name are the same computer."""
    most = more.pop("max_attempts", None)
    return Offer(backend, "here", name, capacity, 0, node=Node(f"node-{name}", name, most), **more)


def nodes(*offers: Offer, **more: Any) -> Supply:
    return Supply(Nodes(), {Need(): offers}, **more)


def here(**more: Any) -> Supply:
    """Return the supply of the backend `local`: one computer."""
    return nodes(node("n1", **more))


def machine(backend: str = "cloud", rate: int = 100, zone: str = "north-1", **more: Any) -> Offer:
    return Offer(backend, zone, "small", more.pop("capacity", FOUR), rate, **more)


class Everything(dict[Need, tuple[Offer, ...]]):
    """The same offers for every need."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        super().__init__()
        self._offers = offers

    def get(self, need: Need, default: Any = None) -> Any:
        return self._offers

    def __contains__(self, need: object) -> bool:
        return True


def on_demand(*offers: Offer, **more: Any) -> Supply:
    return Supply(OnDemand(), Everything(offers), **more)


def provider_queue(*offers: Offer, limit: int = 1, **more: Any) -> Supply:
    return Supply(ProviderQueue(limit), Everything(offers), **more)


def unasked(*, silent: Iterable[Need] = ()) -> Supply:
    return Supply(OnDemand(), {}, unanswered=frozenset(silent))


def job(name: str, cpus: float | None = 1, gpus: int = 0, **more: Any) -> WaitingJob:
    """Return a waiting job; `on` names its backends."""
    first, *others = more.pop("on", ("local",))
    known = {key: more.pop(key) for key in ("failures", "lost", "user", "version") if key in more}
    size = Resources(gpus=gpus) if cpus is None else Resources(cpus=cpus, memory_bytes=GiB, gpus=gpus)
    spec = JobSpec(command=("true",), resources=size, backend=first, fallback=tuple(others), **more)
    made = WaitingJob(f"job-{name}", 1, spec, list_candidates(spec), ranks=spec.nodes)
    return replace(made, **known)


def used(*allocations: Allocation | float) -> tuple[UsedSlots, ...]:
    sizes = [Allocation(cpus=a, memory_bytes=GiB) if isinstance(a, float | int) else a for a in allocations]
    return tuple(UsedSlots(f"job-r{n}", size) for n, size in enumerate(sizes))


def state(backends: Mapping[str, Supply], *jobs: WaitingJob, **more: Any) -> State:
    return State(jobs, backends, **{"now": NOW, **more})


def decide(backends: Mapping[str, Supply], *jobs: WaitingJob, **more: Any) -> dict[str, Any]:
    """Return by job the names of the machines or nodes on which it starts, or why it waits."""
    return {one.job.removeprefix("job-"): _brief(one) for one in schedule(state(backends, *jobs, **more))}


def _brief(decision: Start | Wait) -> Any:
    if isinstance(decision, Wait):
        return decision.why
    names = [grant.offer.node.name if grant.offer.node else grant.offer.backend for grant in decision.grants]
    return names[0] if len(names) == 1 else names


def only(backends: Mapping[str, Supply], one: WaitingJob, **more: Any) -> Any:
    (decision,) = schedule(state(backends, one, **more))
    return decision


def failed(*offers: Offer, count: int = 1, retry_at: float = 0.0) -> dict[OfferKind, Failures]:
    return {OfferKind.from_offer(offer): Failures(count, retry_at) for offer in offers}


# One node


def test_nothing_waits_nothing_is_decided() -> None:
    assert schedule(state({"local": here()})) == []


def test_jobs_start_in_the_order_of_the_queue() -> None:
    first, second = schedule(state({"local": here()}, job("a", 4, version=3), job("b", 4)))
    assert isinstance(first, Start)
    assert (first.job, first.version, first.passed_over) == ("job-a", 3, "")
    assert [grant.allocation for grant in first.grants] == [Allocation(cpus=4, memory_bytes=GiB)]
    assert isinstance(second, Start)


def test_a_job_that_waits_holds_back_all_behind_it_on_the_same_node() -> None:
    found = decide({"local": here()}, job("a", 6), job("b", 4), job("c", 1))
    assert found == {"a": "n1", "b": "waits for 4 CPUs: 2 free, held by job-a"}, "c only waits behind b"


def test_a_job_that_can_never_fit_there_holds_back_nobody() -> None:
    found = decide({"local": here()}, job("a", gpus=5), job("b"))
    assert found == {"a": "asks for 5 GPUs; n1 has 4", "b": "n1"}


def test_gpus_are_never_given_twice() -> None:
    found = schedule(state({"local": here()}, job("a", gpus=2), job("b", gpus=1), used={"node-n1": _gpus(1)}))
    assert [d.grants[0].allocation.gpus for d in found if isinstance(d, Start)] == [(0, 2), (3,)]


def _gpus(*gpus: int) -> tuple[UsedSlots, ...]:
    return used(Allocation(cpus=1, memory_bytes=GiB, gpus=gpus))


def test_a_job_without_a_size_waits_for_the_whole_computer() -> None:
    assert decide({"local": here()}, job("a", None)) == {"a": "n1"}
    found = decide({"local": here()}, job("a", None), used={"node-n1": used(1)})
    why = "wants the whole computer, which job-r0 uses now; with --cpus or --tier it could run beside"
    assert found == {"a": why}
    computer = nodes(Offer("local", "here", "this computer", EIGHT, 0, node=Node("node-n1", "this computer")))
    assert decide({"local": computer}, job("a", None), used={"node-n1": used(1)})["a"].startswith(
        "wants the whole computer, which job-r0 uses now"
    )


def test_no_more_attempts_than_may_run_on_a_node() -> None:
    found = decide({"local": here(max_attempts=1)}, job("a"), job("b"), job("c"))
    assert found == {"a": "n1", "b": "waits for a turn: 1 job may run there at once, now job-a"}


def test_a_reason_names_jobs_by_their_short_id() -> None:
    first = replace(job("a", 8), id="job-01hf7yat00000000000000abcdef")
    (_, waits) = schedule(state({"local": here()}, first, job("b")))
    assert waits.why == "waits for 1 CPUs: 0 free, held by job-abcdef"


def test_nothing_starts_where_a_shared_agent_is_still_ending() -> None:
    found = decide({"local": nodes(node("n1"), ending=frozenset({"node-n1"}))}, job("a"), job("b"))
    assert found == {"a": "waits until the last agent on n1 has ended"}


def test_a_node_that_cannot_be_used_now_is_waited_for() -> None:
    found = decide({"local": here(why_not="does not answer")}, job("a"), job("b"))
    assert found == {"a": "does not answer"}


# Several nodes


def test_the_first_node_with_room_takes_the_job() -> None:
    supply = nodes(node("n1"), node("n2"))
    assert decide({"local": supply}, job("a", 6), job("b", 6), job("c", 2)) == {"a": "n1", "b": "n2", "c": "n1"}


def test_a_waiting_job_holds_back_later_ones_only_from_nodes_that_could_hold_it() -> None:
    supply = nodes(node("n1"), node("n2", capacity=FOUR))
    found = decide({"local": supply}, job("a", 7), job("b", 8), job("c", 2), job("d", 4))
    assert found["a"] == "n1"
    assert found["b"] == "waits for 8 CPUs: 1 free, held by job-a", "of the only node that could hold it"
    assert found["c"] == "n2"
    assert found["d"] == "n2 waits for 4 CPUs: 2 free, held by job-c", "it could run on n1 too, behind b"


def test_a_job_that_only_waits_behind_others_gets_no_reason() -> None:
    supply = nodes(node("n1"), node("n2"))
    assert list(decide({"local": supply}, job("a", 8), job("b", 8), job("c", 8), job("d", 8))) == ["a", "b", "c"]


def test_a_node_that_is_full_is_named_among_several() -> None:
    supply = nodes(node("n1"), node("n2"))
    full = {"node-n1": used(8), "node-n2": used(8)}
    assert decide({"local": supply}, job("a"), used=full) == {"a": "n1 waits for 1 CPUs: 0 free, held by job-r0"}


def test_a_node_that_is_ending_leaves_the_others() -> None:
    supply = nodes(node("n1"), node("n2"), ending=frozenset({"node-n1"}))
    assert decide({"local": supply}, job("a")) == {"a": "n2"}


# One node behind several backends


def twice() -> dict[str, Supply]:
    return {"local": here(), "ssh": nodes(node("n1", "ssh"))}


def test_a_node_behind_two_backends_is_sold_once() -> None:
    found = decide(twice(), job("a", 6), job("b", 6, on=("ssh",)), job("c", 2, on=("ssh",)))
    assert found == {"a": "n1", "b": "waits for 6 CPUs: 2 free, held by job-a"}


def test_what_is_in_use_on_a_node_counts_for_every_backend() -> None:
    found = decide(twice(), job("a"), job("b", on=("ssh",)), used={"node-n1": used(8)})
    assert found["a"].startswith("waits for 1 CPUs")
    assert "b" not in found, "it waits behind a, on the same computer"


def test_who_waits_for_a_node_by_one_backend_holds_it_back_from_another() -> None:
    found = decide(twice(), job("a", 8), job("b", 1, on=("ssh",)), used={"node-n1": used(1)})
    assert found == {"a": "waits for 8 CPUs: 7 free, held by job-r0"}


def test_the_limit_of_attempts_is_that_of_the_node() -> None:
    backends = {"local": here(max_attempts=1), "ssh": nodes(node("n1", "ssh", max_attempts=1))}
    assert decide(backends, job("a"), job("b", on=("ssh",)))["b"].startswith("waits for a turn")


# Backends that make machines


def test_each_job_gets_a_machine_of_its_own() -> None:
    found = schedule(state({"cloud": on_demand(machine())}, *(job(name, on=("cloud",)) for name in "abc")))
    assert all(isinstance(one, Start) for one in found)
    assert [one.grants[0].allocation.cpus for one in found if isinstance(one, Start)] == [4, 4, 4], "all of it"


def test_the_cheapest_that_fits() -> None:
    offers = [machine(rate=300, zone="a"), machine(rate=100, zone="b"), machine(rate=200, zone="c")]
    assert only({"cloud": on_demand(*offers)}, job("a", on=("cloud",))).grants[0].offer == offers[1]
    large = machine(rate=900, capacity=EIGHT)
    assert only({"cloud": on_demand(*offers, large)}, job("a", gpus=1, on=("cloud",))).grants[0].offer == large


def test_of_the_same_price_the_one_that_starts_sooner() -> None:
    slow, fast = machine(zone="a", startup_seconds=60), machine(zone="b", startup_seconds=30)
    assert only({"cloud": on_demand(slow, fast)}, job("a", on=("cloud",))).grants[0].offer == fast


def test_jobs_that_wait_for_machines_hold_back_nobody() -> None:
    found = decide({"cloud": on_demand(machine())}, job("a", 9, on=("cloud",)), job("b", on=("cloud",)))
    assert found == {"a": "waits for a machine on cloud: asks for 9 CPUs; small has 4", "b": "cloud"}


@pytest.mark.parametrize(
    ("offers", "why"),
    [
        ([], "waits for a machine on cloud: there are no offers at the moment"),
        ([machine(why_not="none left")], "waits for a machine on cloud: none left"),
        (
            [machine(rate=1, market=Market.SPOT), machine(why_not="none left")],
            "waits for a machine on cloud: none left",
        ),
    ],
)
def test_why_there_is_no_machine(offers: list[Offer], why: str) -> None:
    assert decide({"cloud": on_demand(*offers)}, job("a", on=("cloud",))) == {"a": why}


def test_as_many_wait_in_a_providers_queue_as_may() -> None:
    jobs = [job(name, on=("slurm",)) for name in "abc"]
    found = decide({"slurm": provider_queue(machine("slurm", 0), limit=2, queued=1)}, *jobs)
    why = "waits for its turn: 2 of our machines queue on slurm"
    assert found == {"a": "slurm", "b": why, "c": why}


def test_a_full_provider_queue_holds_back_nobody_and_is_passed_over() -> None:
    backends = {"slurm": provider_queue(machine("slurm", 0), queued=1), "local": here()}
    found = decide(backends, job("a", on=("slurm",)), job("b", on=("slurm", "local")), job("c"))
    assert found == {"a": "waits for its turn: 1 of our machines queue on slurm", "b": "n1", "c": "n1"}


# Candidates on several backends


def test_the_first_backend_with_room_in_the_users_order() -> None:
    backends = {"local": here(), "cloud": on_demand(machine(rate=0))}
    assert decide(backends, job("a", on=("local", "cloud"))) == {"a": "n1"}
    assert decide(backends, job("a", on=("cloud", "local"))) == {"a": "cloud"}
    assert decide(backends, job("a", on=("local", "cloud")), used={"node-n1": used(8)}) == {"a": "cloud"}


def test_the_order_counts_more_than_the_price() -> None:
    backends = {"dear": on_demand(machine("dear", 900)), "cheap": on_demand(machine("cheap", 1))}
    assert decide(backends, job("a", on=("dear", "cheap"))) == {"a": "dear"}


def test_a_start_elsewhere_says_why_the_preferred_backend_was_not_taken() -> None:
    backends = {"local": here(), "cloud": on_demand(machine())}
    start = only(backends, job("a", on=("local", "cloud")), used={"node-n1": used(8)})
    assert start.passed_over == "local: waits for 1 CPUs: 0 free, held by job-r0"
    start = only(backends, job("a", on=("gone", "cloud")))
    assert start.passed_over == "gone: waits for gone, which is not connected"


def test_a_start_elsewhere_because_others_are_ahead_says_so() -> None:
    backends = {"local": here(), "cloud": on_demand(machine())}
    _, _, third = schedule(state(backends, job("a", 6), job("b", 6), job("c", on=("local", "cloud"))))
    assert isinstance(third, Start)
    assert third.passed_over == "others are ahead of it on local"


def test_a_job_that_waits_for_several_backends_names_each() -> None:
    backends = {"local": here(), "cloud": on_demand(machine(why_not="none left"))}
    found = decide(backends, job("a", on=("cloud", "local")), used={"node-n1": used(8)})
    first, second = "waits for a machine on cloud: none left", "waits for 1 CPUs: 0 free, held by job-r0"
    assert found == {"a": f"cloud: {first}; local: {second}"}


def test_a_job_that_waits_for_several_backends_holds_back_the_nodes_of_each() -> None:
    backends = {"local": here(), "ssh": nodes(node("n2", "ssh"))}
    full = {"node-n1": used(4), "node-n2": used(4)}
    assert list(decide(backends, job("a", 6, on=("local", "ssh")), job("b"), job("c", on=("ssh",)), used=full)) == ["a"]


def test_a_full_node_holds_back_only_its_own_jobs() -> None:
    backends = {"local": here(), "ssh": nodes(node("n2", "ssh"))}
    found = decide(backends, job("a"), job("b"), job("c", on=("ssh",)), used={"node-n1": used(8)})
    assert found == {"a": "waits for 1 CPUs: 0 free, held by job-r0", "c": "n2"}


def test_a_backend_that_is_not_connected_is_waited_for_if_it_is_the_only_one() -> None:
    assert decide({}, job("a", on=("gone",))) == {"a": "waits for gone, which is not connected"}
    assert decide({"local": here()}, job("a", on=("gone", "local"))) == {"a": "n1"}


# Failures


NORTH, SOUTH = machine(rate=10), machine(rate=20, zone="south-1")


def test_what_failed_the_job_is_passed_over() -> None:
    cloud = {"cloud": on_demand(NORTH, SOUTH)}
    assert only(cloud, job("a", on=("cloud",), failures=failed(NORTH))).grants[0].offer == SOUTH
    twice = {**failed(NORTH), **failed(SOUTH, count=2)}
    assert only(cloud, job("a", on=("cloud",), failures=twice)).grants[0].offer == NORTH, "it failed least"


def test_a_failed_kind_is_one_market_of_one_type_in_one_region() -> None:
    spot = machine(rate=1, market=Market.SPOT)
    one = job("a", on=("cloud",), market="spot", spot_fallback=True, failures=failed(spot))
    assert only({"cloud": on_demand(spot, NORTH)}, one).grants[0].offer == NORTH


def test_after_a_refusal_the_next_candidate_is_taken_at_once() -> None:
    backends = {"cloud": on_demand(NORTH), "local": here()}
    one = job("a", on=("cloud", "local"), failures=failed(NORTH, retry_at=NOW + 60))
    start = only(backends, one)
    assert _brief(start) == "n1"
    assert start.passed_over.startswith("cloud: waits for a machine on cloud: all 1 offers that fit have failed it")


def test_after_all_have_refused_it_waits_until_the_first_may_be_tried_again() -> None:
    refused = {**failed(NORTH, retry_at=NOW + 8), **failed(SOUTH, retry_at=NOW + 4)}
    cloud, one = {"cloud": on_demand(NORTH, SOUTH)}, job("a", on=("cloud",), failures=refused)
    waits = only(cloud, one)
    assert waits.why == "waits for a machine on cloud: all 2 offers that fit have failed it; it tries again"
    assert waits.until == NOW + 4
    assert only(cloud, one, now=NOW + 4).grants[0].offer == SOUTH
    assert only(cloud, one, now=NOW + 8).grants[0].offer == NORTH


def test_a_node_that_refused_is_waited_for_with_a_reason() -> None:
    n1, n2 = node("n1"), node("n2")
    refused = failed(n1, retry_at=NOW + 2)
    waits = only({"local": nodes(n1)}, job("a", failures=refused))
    assert (waits.why, waits.until) == ("tries again soon: n1 could not start it", NOW + 2)
    assert decide({"local": nodes(n1, n2)}, job("a", failures=refused)) == {"a": "n2"}


def test_a_job_that_a_node_refused_holds_back_nobody_while_it_pauses() -> None:
    n1 = node("n1")
    refused = job("a", None, failures=failed(n1, retry_at=NOW + 60))
    found = decide({"local": nodes(n1)}, refused, job("b"))
    assert found["b"] == "n1", "others would starve behind a job that the node refuses each time"
    found = decide({"local": nodes(n1)}, refused, job("b"), now=NOW + 60)
    assert found == {"a": "n1", "b": "waits for 1 CPUs: 0 free, held by job-a"}


def test_a_backend_that_lost_the_last_machine_ranks_behind() -> None:
    backends = {"cloud": on_demand(NORTH), "local": here()}
    start = only(backends, job("a", on=("cloud", "local"), lost={"cloud": 1}))
    assert (_brief(start), start.passed_over) == ("n1", "cloud lost the machine of an earlier attempt")
    assert decide(backends, job("a", on=("cloud", "local"), lost={"cloud": 1}), used={"node-n1": used(8)}) == {
        "a": "cloud"
    }, "it is still better than waiting"
    lost = {"cloud": 2, "local": 1}
    assert decide(backends, job("a", on=("cloud", "local"), lost=lost)) == {"a": "n1"}


def test_a_preferred_backend_that_failed_is_named() -> None:
    backends = {"cloud": on_demand(NORTH), "local": here()}
    start = only(backends, job("a", on=("cloud", "local"), failures=failed(NORTH)))
    assert (_brief(start), start.passed_over) == ("n1", "cloud failed an earlier attempt")


# Markets and regions


SPOT = machine(rate=30, market=Market.SPOT)
WITH_SPOT = on_demand(machine(rate=100), SPOT)
OPTION = "with --spot-fallback it could run on demand"


def test_spot_is_only_taken_by_those_who_ask_for_it() -> None:
    assert only({"cloud": WITH_SPOT}, job("a", on=("cloud",))).grants[0].offer.market is Market.ON_DEMAND
    assert only({"cloud": WITH_SPOT}, job("a", on=("cloud",), market="spot")).grants[0].offer.market is Market.SPOT


@pytest.mark.parametrize(
    "offers",
    [[machine()], [machine(), replace(SPOT, why_not="none left")]],
    ids=["no spot", "sold out"],
)
def test_without_a_fallback_spot_is_waited_for_and_the_reason_names_the_option(offers: list[Offer]) -> None:
    why = decide({"cloud": on_demand(*offers)}, job("a", on=("cloud",), market="spot"))["a"]
    assert why.startswith("waits for a machine on cloud")
    assert why.endswith(OPTION)


def test_spot_that_refuses_is_waited_for_and_the_reason_names_the_option() -> None:
    waits = only({"cloud": WITH_SPOT}, job("a", on=("cloud",), market="spot", failures=failed(SPOT, retry_at=NOW + 2)))
    assert (waits.until, waits.why.endswith(OPTION)) == (NOW + 2, True)


def test_with_a_fallback_it_runs_on_demand() -> None:
    cloud = {"cloud": on_demand(machine(), replace(SPOT, why_not="none left"))}
    start = only(cloud, job("a", on=("cloud",), market="spot", spot_fallback=True))
    assert start.grants[0].offer.market is Market.ON_DEMAND
    none = decide({"cloud": on_demand()}, job("a", on=("cloud",), market="spot", spot_fallback=True))
    assert OPTION not in none["a"]


def test_spot_of_every_backend_comes_before_on_demand_of_any() -> None:
    other = on_demand(machine("other", 500), machine("other", 400, market=Market.SPOT))
    start = only(
        {"cloud": on_demand(machine()), "other": other},
        job("a", on=("cloud", "other"), market="spot", spot_fallback=True),
    )
    assert (start.grants[0].offer.backend, start.grants[0].offer.market) == ("other", Market.SPOT)


@pytest.mark.parametrize("market", list(Market))
def test_a_backend_that_does_not_bill_satisfies_every_market(market: Market) -> None:
    assert decide({"local": here()}, job("a", market=market.value)) == {"a": "n1"}
    assert decide({"slurm": provider_queue(machine("slurm", 0))}, job("a", on=("slurm",), market=market.value)) == {
        "a": "slurm"
    }


def test_only_the_regions_that_are_asked_for() -> None:
    near, far = machine(zone="south-2"), machine(rate=10)
    assert only({"cloud": on_demand(near, far)}, job("a", on=("cloud",), regions=("south",))).grants[0].offer == near
    why = decide({"cloud": on_demand(far)}, job("a", on=("cloud",), regions=("west",)))["a"]
    assert why == "waits for a machine on cloud: wants west; small is in north-1"


# What a backend cannot do


def test_a_job_in_place_runs_only_where_that_is_possible() -> None:
    one = job("a", in_place="/home/me", on=("ssh", "local"))
    backends = {"ssh": nodes(node("n2", "ssh")), "local": nodes(node("n1"), in_place=True)}
    start = only(backends, one)
    why = "is to run in place, which ssh cannot; leave out --in-place"
    assert (_brief(start), start.passed_over) == ("n1", f"ssh: {why}")
    assert decide({"ssh": backends["ssh"]}, job("a", in_place="/home/me", on=("ssh",)), job("b", on=("ssh",))) == {
        "a": why,
        "b": "n2",
    }, "it holds back nobody"


def test_a_job_with_a_path_of_this_computer_runs_only_where_it_may_exist() -> None:
    one = job("a", data=({"name": "set", "source": "/data/set"},), on=("ssh", "local"))
    rented = nodes(node("n2", "ssh"), may_see_paths=False)
    start = only({"ssh": rented, "local": nodes(node("n1"))}, one)
    assert _brief(start) == "n1"
    assert start.passed_over.startswith("ssh: reads /data/set, a path of this computer, which machines of ssh do not")
    url = job("b", data=({"name": "set", "source": "https://example.org/set"},), on=("ssh",))
    assert decide({"ssh": rented}, url) == {"b": "n2"}


def test_a_backend_whose_agents_cannot_reach_the_server_runs_nothing() -> None:
    cut = nodes(node("n1"), unreachable="no channel", unreachable_with_secrets="no channel")
    assert decide({"local": cut}, job("a"), job("b")) == {"a": "no channel", "b": "no channel"}


def test_a_channel_that_must_not_carry_secrets_runs_jobs_without_any() -> None:
    plain = nodes(node("n1"), unreachable_with_secrets="no secrets over this channel")
    found = decide({"local": plain}, job("a", secrets={"TOKEN": "token"}), job("b"))
    assert found == {"a": "no secrets over this channel", "b": "n1"}


# Backends that have not answered


def test_a_backend_that_is_pending_delays_those_behind_it() -> None:
    one = job("a", on=("slow", "local"))
    assert decide({"slow": unasked(), "local": here()}, one) == {"a": "slow has not reported its offers yet"}


def test_a_backend_that_is_pending_delays_none_before_it() -> None:
    assert decide({"slow": unasked(), "local": here()}, job("a", on=("local", "slow"))) == {"a": "n1"}


def test_a_backend_that_does_not_answer_delays_nobody() -> None:
    one = job("a", on=("slow", "local"))
    start = only({"slow": unasked(silent=[one.need]), "local": here()}, one)
    assert (_brief(start), start.passed_over) == ("n1", "slow: slow has not reported its offers yet")


def test_a_backend_that_is_asked_in_vain_delays_nobody() -> None:
    cut = replace(unasked(), unreachable="no channel", unreachable_with_secrets="no channel")
    assert decide({"cut": cut, "local": here()}, job("a", on=("cut", "local"))) == {"a": "n1"}


def test_offers_are_by_need_but_nodes_are_the_same_for_all() -> None:
    small, large = job("a", on=("cloud",)), job("b", 2, on=("cloud",))
    cloud = Supply(OnDemand(), {small.need: (machine(),)})
    found = decide({"cloud": cloud}, small, large)
    assert found == {"a": "cloud", "b": "cloud has not reported its offers yet"}
    assert decide({"local": here()}, job("a"), job("b", 2)) == {"a": "n1", "b": "n1"}


# Gangs


THREE = nodes(node("n1"), node("n2"), node("n3"))


def test_a_gang_starts_on_several_nodes_at_once() -> None:
    start = only({"local": THREE}, job("a", 8, nodes=2), used={"node-n1": used(1)})
    assert _brief(start) == ["n2", "n3"]
    assert [grant.allocation.cpus for grant in start.grants] == [8, 8]


def test_a_gang_takes_slots_on_each_of_its_nodes() -> None:
    found = decide({"local": THREE}, job("a", 6, nodes=3), job("b", 3))
    assert found == {"a": ["n1", "n2", "n3"], "b": "n1 waits for 3 CPUs: 2 free, held by job-a"}


def test_a_gang_starts_on_all_or_none_and_holds_back_later_jobs() -> None:
    found = decide({"local": THREE}, job("a", 8, nodes=3), job("b"), used={"node-n1": used(1)})
    assert found == {"a": "waits for 3 nodes at once: there is room on 2"}


def test_a_gang_that_the_backend_can_never_hold_holds_back_nobody() -> None:
    supply = nodes(node("n1"), node("n2"), node("n3", capacity=FOUR))
    found = decide({"local": supply}, job("a", 8, nodes=3), job("b"))
    assert found == {"a": "wants 3 nodes; local has 2 that could hold it", "b": "n1"}


def test_a_gang_never_spans_backends() -> None:
    backends = {"local": here(), "ssh": nodes(node("n2", "ssh")), "cloud": on_demand(machine())}
    assert decide(backends, job("a", nodes=2, on=("local", "ssh", "cloud"))) == {"a": ["cloud", "cloud"]}


def test_a_node_that_is_offered_twice_is_one_node() -> None:
    two_names = nodes(node("n1"), replace(node("n1"), instance_type="another name"))
    found = decide({"local": two_names}, job("a", 6, nodes=2), job("b", 8), job("c", 8))
    assert found["a"] == "wants 2 nodes; local has 1 that could hold it"
    assert found["b"] == "n1"


def test_a_gang_on_demand_gets_machines_of_one_offer() -> None:
    start = only({"cloud": on_demand(SOUTH, NORTH)}, job("a", nodes=3, on=("cloud",)))
    assert [grant.offer for grant in start.grants] == [NORTH] * 3


def test_a_gang_in_a_providers_queue_counts_for_each_of_its_machines() -> None:
    slurm = provider_queue(machine("slurm", 0), limit=3)
    jobs = [job("a", nodes=2, on=("slurm",)), job("b", on=("slurm",)), job("c", on=("slurm",))]
    found = decide({"slurm": slurm}, *jobs)
    assert found == {"a": ["slurm"] * 2, "b": "slurm", "c": "waits for its turn: 3 of our machines queue on slurm"}


def test_a_gang_larger_than_the_limit_gets_its_turn_in_a_providers_queue() -> None:
    slurm = provider_queue(machine("slurm", 0), limit=1)
    assert decide({"slurm": slurm}, job("a", nodes=4, on=("slurm",)))["a"] == ["slurm"] * 4


def test_a_gang_takes_no_node_that_just_refused_it() -> None:
    n1, n2, n3 = node("n1"), node("n2"), node("n3")
    one = job("a", nodes=2, failures=failed(n1, retry_at=NOW + 5))
    assert decide({"local": nodes(n1, n2, n3)}, one) == {"a": ["n2", "n3"]}
    waits = only({"local": nodes(n1, n2)}, one)
    assert (waits.why, waits.until) == ("waits for 2 nodes at once: there is room on 1", NOW + 5)


# Properties


NAMES = ("n1", "n2", "n3")
BACKENDS = ("local", "ssh", "cloud")
sizes = st.one_of(
    st.just(Resources()),
    st.builds(Resources, gpus=st.integers(0, 4)),
    st.builds(Resources, cpus=st.floats(0.01, 9)),
    st.builds(Resources, cpus=st.floats(0.01, 9), memory_bytes=st.integers(GiB, 33 * GiB), gpus=st.integers(0, 5)),
)
lines = st.lists(st.sampled_from(BACKENDS), min_size=1, max_size=3, unique=True)


@st.composite
def queues(draw: st.DrawFn, on: tuple[str, ...] = ()) -> tuple[WaitingJob, ...]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        first, *others = on or draw(lines)
        spec = JobSpec(
            command=("true",),
            resources=draw(sizes),
            backend=first,
            fallback=tuple(others),
            nodes=draw(st.sampled_from([1, 1, 1, 2, 3])),
            priority=draw(st.integers(-1, 1)),
        )
        made = WaitingJob(f"job-{number:03}", 1, spec, list_candidates(spec), draw(st.sampled_from("ab")), spec.nodes)
        found.append(made)
    return tuple(found)


@st.composite
def supplies(draw: st.DrawFn) -> dict[str, Supply]:
    """Return backends of which some reach the same nodes, also by two names, and one makes machines."""
    limits = {name: draw(st.sampled_from([None, None, 1, 2])) for name in NAMES}
    found = {
        backend: nodes(
            *(
                replace(node(name, backend, max_attempts=limits[name]), instance_type=f"{name}-{n}")
                for n, name in enumerate(draw(st.lists(st.sampled_from(NAMES), max_size=4)))
            )
        )
        for backend in ("local", "ssh")
    }
    capacity = draw(st.sampled_from([OnDemand(), ProviderQueue(1), ProviderQueue(2)]))
    cloud = machine(rate=draw(st.sampled_from([0, 50])), why_not=draw(st.sampled_from(["", "none left"])))
    return {**found, "cloud": Supply(capacity, Everything((cloud,)), queued=draw(st.integers(0, 2)))}


def carry_out(before: State) -> State:
    """Return the state after all decisions are carried out."""
    in_use = dict(before.used)
    started = set()
    for decision in schedule(before):
        if isinstance(decision, Start):
            started.add(decision.job)
            for grant in decision.grants:
                if grant.offer.node is not None:
                    slots = UsedSlots(decision.job, grant.allocation)
                    in_use[grant.offer.node.id] = (*in_use.get(grant.offer.node.id, ()), slots)
    return replace(before, jobs=tuple(one for one in before.jobs if one.id not in started), used=in_use)


def assert_within(found: State) -> None:
    limits = {o.node.id: o.node.max_attempts for s in found.backends.values() for o in _all_offers(s) if o.node}
    for name, slots in found.used.items():
        gpus = [gpu for one in slots for gpu in one.allocation.gpus]
        assert sum(one.allocation.cpus for one in slots) <= EIGHT.cpus + 1e-6
        assert sum(one.allocation.memory_bytes for one in slots) <= EIGHT.memory_bytes
        assert len(gpus) == len(set(gpus))
        assert limits[name] is None or len(slots) <= limits[name]


def _all_offers(supply: Supply) -> tuple[Offer, ...]:
    return supply.offers_for(Need()) or ()


@given(supplies(), queues(), queues())
def test_never_more_is_given_out_than_there_is_on_any_node(
    backends: dict[str, Supply], first: tuple[WaitingJob, ...], second: tuple[WaitingJob, ...]
) -> None:
    once = carry_out(state(backends, *first))
    assert_within(once)
    assert_within(carry_out(replace(once, jobs=second)))


@given(supplies(), queues())
def test_the_same_state_means_the_same_decisions(backends: dict[str, Supply], queue: tuple[WaitingJob, ...]) -> None:
    given_state = state(backends, *queue)
    first = schedule(given_state)
    assert schedule(given_state) == first
    assert given_state == state(backends, *queue), "nothing is changed"


@given(supplies(), queues())
def test_each_job_is_decided_once_with_a_grant_for_each_rank_or_a_reason(
    backends: dict[str, Supply], queue: tuple[WaitingJob, ...]
) -> None:
    ranks = {one.id: one.ranks for one in queue}
    decisions = schedule(state(backends, *queue))
    assert len({one.job for one in decisions}) == len(decisions)
    for decision in decisions:
        if isinstance(decision, Wait):
            assert decision.why
            continue
        offers = [grant.offer for grant in decision.grants]
        assert len(offers) == ranks[decision.job]
        assert len({offer.backend for offer in offers}) == 1
        on_nodes = [offer.node.id for offer in offers if offer.node]
        assert len(on_nodes) == len(set(on_nodes))


@given(supplies(), queues())
def test_deciding_again_at_once_starts_nobody_else(backends: dict[str, Supply], queue: tuple[WaitingJob, ...]) -> None:
    """A job that waits does not wait for the next round."""
    still = {name: supply for name, supply in backends.items() if isinstance(supply.capacity, Nodes)}
    alone = (replace(one, user=one.id) for one in queue)  # nobody has two turns to trade
    after = carry_out(state(still, *alone))
    assert not [one for one in schedule(after) if isinstance(one, Start)]


@given(supplies(), queues())
def test_later_jobs_change_nothing_for_earlier_ones(backends: dict[str, Supply], queue: tuple[WaitingJob, ...]) -> None:
    alone = tuple(replace(one, user=one.id) for one in queue)  # nobody has two turns to trade
    whole = schedule(state(backends, *alone))
    for n in range(len(alone)):
        part = schedule(state(backends, *alone[:n]))
        assert part == whole[: len(part)]


@given(supplies(), queues(), st.data())
def test_every_job_that_can_fit_gets_its_turn(
    backends: dict[str, Supply], queue: tuple[WaitingJob, ...], data: st.DataObject
) -> None:
    """Whoever ends, in whatever order, nobody who could run on a node waits for ever."""
    still = {name: supply for name, supply in backends.items() if isinstance(supply.capacity, Nodes)}
    found = state(still, *queue)
    for _ in range(2 * len(queue) + 1):
        found = carry_out(found)
        assert_within(found)
        if running := sorted({one.holder for slots in found.used.values() for one in slots}):
            ends = data.draw(st.sampled_from(running))
            left = {name: tuple(one for one in slots if one.holder != ends) for name, slots in found.used.items()}
            found = replace(found, used=left)
    assert not any(found.used.values())
    for left_over in found.jobs:
        alone = schedule(replace(found, jobs=(left_over,)))
        assert isinstance(alone[0], Wait), "it would not start on empty nodes either"


@given(queues(on=("local",)))
def test_on_one_node_nobody_overtakes(queue: tuple[WaitingJob, ...]) -> None:
    single = tuple(replace(one, ranks=1, user=one.id) for one in queue)
    begun = [one.job for one in schedule(state({"local": here()}, *single)) if isinstance(one, Start)]
    could = [one.id for one in single if _fits_the_empty_node(one)]
    assert begun == could[: len(begun)]


def _fits_the_empty_node(one: WaitingJob) -> bool:
    return isinstance(schedule(state({"local": here()}, one))[0], Start)


def test_a_candidate_is_a_backend_and_a_market() -> None:
    """The stored candidates decide, not what the spec says since."""
    one = replace(job("a", on=("cloud",)), candidates=(Candidate("cloud", Market.SPOT),))
    assert only({"cloud": WITH_SPOT}, one).grants[0].offer.market is Market.SPOT
