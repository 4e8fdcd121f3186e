"""Where a job would run, asked without running it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.clouds import FakeCloud
from tests.control.world import Rig, give_back, job_spec, make_rig

from crucible.control.db import schema as t
from crucible.control.orders import SAVING_SECONDS, STAGING_SECONDS
from crucible.core.errors import NoCapacity, UnknownName
from crucible.core.offers import Market


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """With a cloud of three zones beside this computer."""
    rig = await make_rig(tmp_path, FakeCloud())
    yield rig
    await give_back(rig.ports.db)


def plan(rig: Rig, **more: Any) -> Any:
    return rig.parts.plans.of(job_spec(**more), rig.clock.now())


async def test_offers_of_all_places_the_jobs_own_first_and_the_cheapest_before_others(rig: Rig) -> None:
    found = plan(rig, backend="cloud", fallback=("local",))
    assert [(offer["backend"], offer["region"], offer["named"]) for offer in found["offers"]] == [
        ("cloud", "north-1", True),
        ("cloud", "north-2", True),
        ("cloud", "south-1", True),
        ("local", "here", True),
    ]
    assert {offer["why"] for offer in found["rejected"]} == {"wants on_demand; sim.small is spot"}


async def test_a_place_that_the_job_does_not_name_is_shown_and_not_chosen(rig: Rig) -> None:
    found = plan(rig)
    assert (found["chosen"]["backend"], found["places"]) == ("local", ["local"])
    assert {offer["backend"] for offer in found["offers"] if not offer["named"]} == {"cloud"}


async def test_what_is_chosen_comes_with_its_call_and_its_end(rig: Rig) -> None:
    found = plan(rig, backend="cloud", market=Market.SPOT, seconds=3600.0, grace_seconds=10.0)
    chosen = found["chosen"]
    assert (chosen["region"], chosen["market"], chosen["rate_micros_per_hour"]) == ("north-1", "spot", 300_000)
    assert chosen["call"]["token"].startswith("mch-")
    life = 30 + STAGING_SECONDS + 3600 + 10 + SAVING_SECONDS
    assert chosen["most_micros"] == pytest.approx(life * 300_000 / 3600, abs=1)
    assert chosen["ends_at"] is not None


async def test_it_is_what_a_submission_would_ask_for(rig: Rig) -> None:
    more = {"backend": "cloud", "market": Market.SPOT, "regions": ("north-2",)}
    planned = plan(rig, **more)["chosen"]
    await rig.submit(**more)
    made = await rig.machine()
    assert (made.region, made.market.value, made.rate) == (
        planned["region"],
        planned["market"],
        planned["rate_micros_per_hour"],
    )


async def test_what_is_sold_out_is_rejected_with_the_reason_and_the_job_would_wait(rig: Rig) -> None:
    cloud = rig.backends["cloud"]
    assert isinstance(cloud, FakeCloud)
    cloud.sold_out = set(cloud.rates)
    await rig.places.refresh()
    found = plan(rig, backend="cloud")
    assert found["chosen"] is None
    assert "sold out" in {offer["why"] for offer in found["rejected"]}


async def test_nothing_is_stored_and_nothing_is_launched(rig: Rig) -> None:
    before = [await rig.count(table) for table in (t.jobs, t.machines, t.effects, t.events)]
    plan(rig, backend="cloud")
    assert [await rig.count(table) for table in (t.jobs, t.machines, t.effects, t.events)] == before == [0] * 4


async def test_what_no_place_can_hold_is_refused_as_a_submission_is(rig: Rig) -> None:
    with pytest.raises(NoCapacity):
        plan(rig, gpus=8)
    with pytest.raises(UnknownName):
        plan(rig, backend="clod")
