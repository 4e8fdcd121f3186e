from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crucible.client.request.job_request import ArgumentReader, make_spec
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.ranking import Ranking, rank_backends
from crucible.client.request.requirements import PREFERENCES, REQUIREMENTS, Preferences, Requirements
from crucible.core.errors import NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.routing.plan_request import Goal, Objective
from crucible.core.views.compute import BackendView

GiB = 1024**3


def offer(**changes: Any) -> dict[str, Any]:
    capacity = {"cpus": 4, "memory_bytes": 16 * GiB, "gpus": [0], "gpu_memory_bytes": 16 * GiB}
    base = {"region": "north", "instance_type": "t4", "capacity": capacity, "market": "on_demand"}
    return {**base, "rate_micros_per_hour": 500_000, "runnable": True, **changes}


def backend(name: str, *offers: dict[str, Any], slots: str = "elastic", simulated: bool = False) -> BackendView:
    return BackendView(
        name=name, connected=bool(offers), offers=offers, capabilities={"slots": slots, "simulated": simulated}
    )


BARE = {"cpus": 2, "memory_bytes": 8 * GiB, "gpus": []}
LOCAL = backend("local", offer(capacity=BARE, rate_micros_per_hour=0), slots="counted")
CHEAP = backend("cheap", offer(startup_seconds=300), offer(market="spot", rate_micros_per_hour=100_000))
QUICK = backend("quick", offer(rate_micros_per_hour=2_000_000, startup_seconds=5))
PLAY = backend("play", offer(rate_micros_per_hour=1), simulated=True)
ALL = (QUICK, PLAY, CHEAP, LOCAL)
GPU = Requirements(gpu_memory_gb=16)


def rank(
    backends: tuple[BackendView, ...],
    needs: Requirements,
    preferences: Preferences = Preferences(),  # noqa: B008  frozen
    **more: Any,
) -> Ranking:
    reader = ArgumentReader({**REQUIREMENTS, **PREFERENCES}, str, SubmitHost({}, Path()))
    fields, goal = reader.read({**needs.arguments(), **preferences.arguments()})
    spec = make_spec({"command": ("true",), **fields, "regions": more.pop("regions", ())})
    return rank_backends(backends, spec, goal, **more)


def names(needs: Requirements = GPU, **said: Any) -> tuple[str, ...]:
    order = said.pop("order", None)
    return rank(ALL, needs, Preferences(**said), order=order).names


def test_the_cheapest_first_or_the_soonest() -> None:
    assert names() == ("cheap", "quick")
    assert names(optimize_for=Objective.SPEED) == ("quick", "cheap")
    assert names(Requirements()) == ("local", "cheap", "quick")


def test_a_simulated_place_is_taken_only_when_no_real_one_can_hold_the_job() -> None:
    needs = Requirements(gpu_memory_gb=16)
    assert rank((PLAY, LOCAL), needs, Preferences()).names == ("play",)
    assert rank((PLAY, LOCAL), needs, Preferences()).is_simulated
    assert "play" not in names(Requirements())


def test_named_it_is_taken_behind_the_real_ones() -> None:
    assert names(allowed_backends=("play", "cheap")) == ("cheap", "play")


def test_an_order_is_kept_without_those_that_cannot_hold_it() -> None:
    assert names(order=("play", "local", "quick")) == ("play", "quick")


def test_a_place_of_an_order_that_has_not_said_what_it_offers_is_not_passed_over() -> None:
    line = rank((backend("silent"), LOCAL), Requirements(), Preferences(), order=("silent", "local"))
    assert line.names == ("silent", "local")
    assert rank((backend("silent"), LOCAL), Requirements(), Preferences()).names == ("local",)


def test_whoever_allows_interruption_gets_the_price_of_spot_where_there_is_any() -> None:
    line = rank(ALL, Requirements(gpu_memory_gb=16, interruptible=True), Preferences())
    assert [found and found.rate_micros_per_hour for found in line.offers.values()] == [100_000, 2_000_000]


def test_rejected_places_say_why() -> None:
    line = rank(ALL, GPU, Preferences())
    assert "asks for 1 GPU; local has none" in line.rejected["local"]


def test_a_backend_nobody_knows_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'cheap'"):
        names(allowed_backends=("cheep",))


def test_more_than_any_place_has() -> None:
    with pytest.raises(NoCapacity, match="quick: asks for GPUs with 80 GiB") as raised:
        names(Requirements(gpu_memory_gb=80))
    assert {item["backend"] for item in raised.value.data["rejected"]} == {"local", "cheap", "quick", "play"}  # type: ignore[attr-defined]
    with pytest.raises(NoCapacity, match="offers nothing"):
        rank((backend("empty"),), GPU, Preferences())
    with pytest.raises(NoCapacity, match="connected to no backend"):
        rank((), GPU, Preferences())


def test_a_region_that_a_place_has_not() -> None:
    with pytest.raises(NoCapacity, match="wants south"):
        rank((CHEAP,), GPU, Preferences(), regions=("south",))


def test_places_that_would_cost_too_much_are_left_out() -> None:
    needs = Requirements(gpu_memory_gb=16, duration_hours_estimated=3, max_cost_usd=2)
    line = rank((QUICK, CHEAP), needs, Preferences())
    assert line.names == ("cheap",)
    assert "3 hours cost $6.00" in line.rejected["quick"]
    with pytest.raises(RefusedByPolicy, match="Raise max_cost_usd"):
        rank((QUICK,), needs, Preferences())
    for little in (0, 0.0005):
        with pytest.raises(RefusedByPolicy, match=r"would cost \$0\.\d+ at least, more than"):
            rank((QUICK,), Requirements(max_cost_usd=little), Preferences())
    assert rank((QUICK, LOCAL), Requirements(max_cost_usd=0), Preferences()).names == ("local",)


def rank_spot(backends: tuple[BackendView, ...], order: tuple[str, ...] | None = None, **more: Any) -> Ranking:
    spec = make_spec({"command": ("true",), "market": "spot", **more})
    return rank_backends(backends, spec, Goal(), order)


def test_spot_is_waited_for_and_the_option_that_allows_more_is_named() -> None:
    line = rank_spot((QUICK, CHEAP))
    assert line.names == ("cheap",)
    assert line.rejected["quick"] == "has no spot machine that fits; spot_fallback also allows those on demand"
    with pytest.raises(NoCapacity, match="spot_fallback also allows"):
        rank_spot((QUICK,))
    with pytest.raises(NoCapacity, match="asks for 9 GPUs"):
        rank_spot((CHEAP,), resources={"gpus": 9})


def test_with_the_fallback_every_spot_machine_comes_before_those_on_demand() -> None:
    bargain = backend("bargain", offer(rate_micros_per_hour=50_000))
    line = rank_spot((bargain, QUICK, CHEAP, LOCAL), spot_fallback=True)
    assert line.names == ("local", "cheap", "bargain", "quick")
    sold_out = backend("cheap", offer(), offer(market="spot", rate_micros_per_hour=1, runnable=False, why="sold out"))
    assert [found and found.market for found in rank_spot((sold_out,), spot_fallback=True).offers.values()] == [
        "on_demand"
    ]
    assert [found and found.market for found in rank_spot((sold_out,)).offers.values()] == ["spot"]


def test_what_does_not_bill_satisfies_every_market() -> None:
    capabilities = {"slots": "theirs", "bills": False}
    lab = BackendView(name="lab", connected=True, offers=[offer(rate_micros_per_hour=0)], capabilities=capabilities)
    assert rank_spot((QUICK, lab, LOCAL)).names == ("lab", "local")


def test_the_budget_rules_out_offers_and_not_a_backend_that_has_a_cheaper_one() -> None:
    both = backend("both", offer(market="spot", rate_micros_per_hour=100_000, runnable=False, why="sold out"), offer())
    spec = make_spec({"command": ("true",), "spot_fallback": True, "max_cost_usd": 0.5})
    best = rank_backends((both,), spec, Goal(hours=3)).offers["both"]
    assert best is not None
    assert best.market == "spot"
