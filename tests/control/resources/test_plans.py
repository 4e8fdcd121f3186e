"""Where a job would run, asked without running it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.clouds import ZONES, FakeCloud
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, give_back, job_spec, make_harness

from crucible.control.db import schema as t
from crucible.control.machines.machine_factory import SAVING_SECONDS, STAGING_SECONDS
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput, UnknownName
from crucible.core.people.identity import OWNER
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.rejections import NOT_SPOT

REAL = replace(FakeCloud.capabilities, simulated=False)
LARGE = """
import torch
model = torch.nn.Linear(60_000, 60_000).cuda()
"""
HUGE = """
import torch
model = torch.nn.Linear(600_000, 600_000)
if torch.cuda.is_available():
    model.cuda()
"""
NEEDS_GPU = """
import torch
model = torch.nn.Linear(1000, 1000).cuda()
"""
SHARED = f"{NEEDS_GPU}model = torch.nn.parallel.DistributedDataParallel(model)\n"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """With a cloud of three zones beside this computer."""
    harness = await make_harness(tmp_path, FakeCloud(capabilities=REAL))
    yield harness
    await give_back(harness.ports.db)


async def plan(harness: ControlHarness, asked: dict[str, Any] | None = None, **more: Any) -> Any:
    """`asked` is what a plan may be asked beyond a submission."""
    ask = PlanRequest.model_validate({**dict(job_spec(**more)), **(asked or {})})
    return (await harness.services.plans.plan(OWNER, ask)).as_json()


def runnable(found: Any) -> list[tuple[str, str]]:
    return [(offer["backend"], offer["region"]) for offer in found["offers"] if offer["runnable"]]


async def test_named_places_come_in_their_order_and_the_cheapest_of_each_first(harness: ControlHarness) -> None:
    found = await plan(harness, {"every_region": True}, backend="cloud", fallback=("local",))
    wanted = [("cloud", "north-1"), ("cloud", "north-2"), ("cloud", "south-1"), ("local", "here")]
    assert runnable(found) == wanted
    assert "is spot, not on_demand" in {offer["why"] for offer in found["rejected"]}


async def test_this_computer_is_free_and_others_are_shown_with_what_they_would_cost(harness: ControlHarness) -> None:
    found = await plan(harness, {"hours": 2.0})
    assert found["chosen"]["backend"] == "local"
    assert found["job"] == {"backend": "local"}
    cloud = next(offer for offer in found["offers"] if offer["backend"] == "cloud")
    assert cloud["total_micros"] >= 2 * cloud["rate_micros_per_hour"]
    assert cloud["eta_seconds"] == pytest.approx(2 * 3600 + 30)


async def test_a_plan_in_json(harness: ControlHarness) -> None:
    found = await plan(
        harness, {"hours": 2.0, "max_cost_usd": 3.0}, backend="cloud", market=Market.SPOT, seconds=3600.0
    )
    apart = ("chosen", "offers", "rejected", "rejected_count", "prices")
    assert {name: value for name, value in found.items() if name not in apart} == {
        "profile": None,
        "need": {"cpus": 1.0, "memory_bytes": GiB, "gpus": 0, "gpu_memory_bytes": None, "seconds": 3600.0},
        "gpu": "none",
        "hours": 2.0,
        "hours_on": None,
        "interruptible": True,
        "tier": "GPU_SMALL",
        "advice": "Detected about 2h 00m of work. Recommended: GPU_SMALL.",
        "image": "crucible/python:3.11-slim",
        "learned": None,
        "why": None,
        "fallback": None,
        "offers_count": 3,
        "hours_said": True,
        "accuracy": {"count": 0, "median_error": None, "close": None},
        "job": {"backend": "cloud", "max_cost_usd": 3.0},
        "waits": False,
        "too_dear": False,
        "nearest": None,
    }
    chosen, first = found["chosen"], found["offers"][0]
    assert set(chosen) - set(first) == {"call", "ends_at"}
    assert set(chosen["call"]) == {"backend", "token", "action", "parameters"}
    assert chosen["ends_at"].endswith("Z")
    assert set(found["rejected"][0]) - set(first) == {"alike"}
    assert found["rejected_count"] >= len(found["rejected"])
    assert set(found["prices"]) == {"oldest", "newest", "oldest_days", "refused", "note"}


async def test_of_each_type_the_best_region_unless_all_are_asked_for(harness: ControlHarness) -> None:
    assert runnable(await plan(harness)) == [("local", "here"), ("cloud", "north-1")]
    assert len(runnable(await plan(harness, {"every_region": True}))) == 4


async def test_what_is_chosen_comes_with_its_call_and_its_end(harness: ControlHarness) -> None:
    found = await plan(harness, backend="cloud", market=Market.SPOT, seconds=3600.0, grace_seconds=10.0)
    chosen = found["chosen"]
    assert (chosen["region"], chosen["market"], chosen["rate_micros_per_hour"]) == ("north-1", "spot", 300_000)
    assert chosen["call"]["token"].startswith("mch-")
    life = 30 + STAGING_SECONDS + 3600 + 10 + SAVING_SECONDS
    assert chosen["most_micros"] == pytest.approx(life * 300_000 / 3600, abs=1)
    assert chosen["ends_at"] is not None


async def test_it_is_what_a_submission_would_ask_for(harness: ControlHarness) -> None:
    more = {"backend": "cloud", "market": Market.SPOT, "regions": ("north-2",)}
    planned = (await plan(harness, **more))["chosen"]
    await harness.submit(**more)
    made = await harness.machine()
    assert (made.region, made.market.value, made.rate) == (
        planned["region"],
        planned["market"],
        planned["rate_micros_per_hour"],
    )


async def test_money_bounds_the_time_and_is_part_of_what_to_submit(harness: ControlHarness) -> None:
    found = await plan(harness, {"max_cost_usd": 0.1}, backend="cloud")
    assert found["chosen"]["paid_seconds"] == 370
    assert found["job"] == {"backend": "cloud", "max_cost_usd": 0.1}
    assert (found["too_dear"], found["chosen"]["most_micros"]) == (False, 702_500)
    free = await plan(harness, {"max_cost_usd": 0})
    assert (free["chosen"]["backend"], free["chosen"]["paid_seconds"]) == ("local", None)


async def test_where_it_costs_too_much_however_short_it_is_money_is_named(harness: ControlHarness) -> None:
    found = await plan(harness, {"max_cost_usd": 0.000001}, backend="cloud")
    assert (found["chosen"], found["too_dear"]) == (None, True)
    assert "would cost $0.00775 at least, more than $0.000001" in found["why"]
    large = await plan(harness, {"max_cost_usd": 0}, backend="cloud", cpus=64)
    assert (large["chosen"], large["too_dear"]) == (None, False)


async def test_what_is_sold_out_would_be_waited_for(harness: ControlHarness) -> None:
    await sell_out(harness, *ZONES)
    found = await plan(harness, backend="cloud")
    assert (found["chosen"], found["waits"], found["job"]) == (None, True, {"backend": "cloud"})
    assert found["why"] == "No capacity for it at the moment: sold out."


async def sell_out(harness: ControlHarness, *zones: str, spot: bool = False) -> None:
    cloud = harness.backends["cloud"]
    assert isinstance(cloud, FakeCloud)
    cloud.sold_out, cloud.spot_sold_out = set(zones), spot
    await harness.offers.refresh()


async def test_the_price_on_demand_is_shown_before_it_is_paid(harness: ControlHarness) -> None:
    found = await plan(harness, {"hours": 2.0}, backend="cloud", spot_fallback=True)
    chosen, fallback = found["chosen"], found["fallback"]
    assert (chosen["market"], chosen["rate_micros_per_hour"]) == ("spot", 300_000)
    assert (fallback["market"], fallback["rate_micros_per_hour"]) == ("on_demand", 900_000)
    assert fallback["total_micros"] > 2 * chosen["total_micros"]
    assert found["job"] == {"backend": "cloud"}
    assert [offer["market"] for offer in found["offers"]] == ["spot", "on_demand"]


async def test_without_the_fallback_a_job_on_spot_waits_and_the_option_is_named(harness: ControlHarness) -> None:
    found = await plan(harness, backend="cloud", market=Market.SPOT)
    assert (found["chosen"]["market"], found["fallback"]) == ("spot", None)
    assert NOT_SPOT in {offer["why"] for offer in found["rejected"]}
    await sell_out(harness, spot=True)
    waiting = await plan(harness, backend="cloud", market=Market.SPOT)
    assert (waiting["chosen"], waiting["waits"]) == (None, True)
    assert waiting["why"] == (
        "No capacity for it at the moment: sold out. It waits for spot; --spot-fallback would let it run on demand."
    )
    falls_back = await plan(harness, backend="cloud", spot_fallback=True)
    assert (falls_back["chosen"]["market"], falls_back["fallback"]) == ("on_demand", None)
    await sell_out(harness, *ZONES)
    waiting = await plan(harness, backend="cloud", spot_fallback=True)
    assert (waiting["chosen"], waiting["waits"], waiting["fallback"]["market"]) == (None, True, "on_demand")


async def test_what_is_free_is_taken_before_anything_on_demand(harness: ControlHarness) -> None:
    spot = {"backend": "cloud", "fallback": ("local",), "spot_fallback": True}
    found = await plan(harness, **spot)
    assert [(offer["backend"], offer["market"]) for offer in found["offers"]] == [
        ("cloud", "spot"),
        ("local", "on_demand"),
        ("cloud", "on_demand"),
    ]
    await sell_out(harness, spot=True)
    found = await plan(harness, **spot)
    assert (found["chosen"]["backend"], found["fallback"]) == ("local", None)


async def test_spot_that_the_plan_chose_by_itself_falls_back(harness: ControlHarness) -> None:
    wanted = {"interruptible": True, "allowed_backends": ("cloud",)}
    found = await plan(harness, wanted)
    assert found["job"] == {"backend": "cloud", "market": "spot", "spot_fallback": True}
    assert found["fallback"]["rate_micros_per_hour"] == 900_000
    dear = await plan(harness, {**wanted, "hours": 10.0, "max_cost_usd": 4.0})
    assert (dear["job"]["market"], "spot_fallback" in dear["job"], dear["fallback"]) == ("spot", False, None)


async def test_nothing_is_stored_and_nothing_is_launched(harness: ControlHarness) -> None:
    before = [await harness.count(table) for table in (t.jobs, t.machines, t.effects, t.events)]
    await plan(harness, backend="cloud")
    assert [await harness.count(table) for table in (t.jobs, t.machines, t.effects, t.events)] == before == [0] * 4


async def test_a_place_that_is_not_connected_is_shown_and_never_chosen(harness: ControlHarness) -> None:
    found = await plan(harness, {"code": LARGE})
    assert (found["chosen"], found["waits"], found["job"]) == (None, False, None)
    assert found["why"].startswith("No connected backend can run it: it has no GPU, and one is needed.")
    assert "It would fit on " in found["why"]
    best = found["offers"][0]
    assert (best["runnable"], best["backend"] in ("local", "cloud")) == (False, False)
    assert f"no command connects {best['backend']} yet" in best["why"]


async def test_a_place_that_is_named_is_taken_whatever_the_program_looks_like(harness: ControlHarness) -> None:
    assert "cloud" not in dict(runnable(await plan(harness, {"code": NEEDS_GPU})))
    found = await plan(harness, {"code": NEEDS_GPU}, backend="cloud")
    assert found["chosen"]["backend"] == "cloud"
    assert "no GPU, though the program would use one" in found["chosen"]["cons"]
    assert {offer["backend"] for offer in found["offers"]} == {"cloud"}


async def test_at_a_place_that_is_named_it_gets_what_holds_it(harness: ControlHarness) -> None:
    """This computer has a GPU, the cloud none: only where one of them lacks it is it left out."""
    found = await plan(harness, {"code": NEEDS_GPU}, backend="local")
    assert (found["gpu"], found["job"]["resources"]["gpus"]) == ("required", 1)
    both = await plan(harness, {"code": NEEDS_GPU}, backend="cloud", fallback=("local",))
    assert (both["chosen"]["backend"], "resources" in both["job"]) == ("cloud", False)


async def test_a_machine_that_is_made_for_it_is_asked_for_the_memory_that_was_read(harness: ControlHarness) -> None:
    program = {"code": "import numpy as np\nX = np.zeros((100_000, 100))\n"}
    found = await plan(harness, program, backend="cloud", memory=None)
    assert found["job"]["resources"]["memory_bytes"] == 2 * 80_000_000 + 100_000_000
    assert "resources" not in (await plan(harness, program, backend="cloud", memory=2 * GiB))["job"]
    assert "resources" not in (await plan(harness, program, backend="local", memory=None))["job"]
    assert "resources" not in (await plan(harness, program, backend="cloud", fallback=("local",), memory=None))["job"]


async def test_a_program_that_takes_as_many_gpus_as_it_gets_asks_for_those_of_the_machine(
    harness: ControlHarness,
) -> None:
    program = {"code": SHARED, "optimize": "speed"}
    found = await plan(harness, program, backend="local")
    assert found["job"]["resources"]["gpus"] == len(found["chosen"]["capacity"]["gpus"]) == 2
    assert any("estimated for one process on each of 2 GPUs" in word for word in found["chosen"]["cons"])
    started = ("torchrun", "--nproc-per-node", "1", "main.py")
    assert (await plan(harness, program, backend="local", command=started))["job"]["resources"]["gpus"] == 1


async def test_a_model_that_this_computer_cannot_hold_does_not_go_here_unless_it_is_named(
    harness: ControlHarness,
) -> None:
    found = await plan(harness, {"code": HUGE})
    whys = [offer["why"] for offer in found["rejected"]]
    assert any("the job would use 1.3" in why for why in whys)
    assert any(re.search("has .* of memory; the job would take .* without a GPU", why) for why in whys)
    assert (await plan(harness, {"code": HUGE}, backend="local"))["chosen"]["backend"] == "local"


async def test_a_program_is_understood(harness: ControlHarness) -> None:
    found = await plan(harness, {"files": {"train.py": NEEDS_GPU}, "command": ("python", "train.py")})
    assert (found["profile"]["frameworks"], found["profile"]["gpu"]) == (["torch"], "required")
    assert found["profile"]["evidence"]["gpu"][0]["line"] == 3
    assert found["advice"].startswith("Detected GPU usage (train.py:3)")
    assert found["tier"] == "GPU_SMALL"
    assert found["image"] == "crucible/ml-pytorch-gpu:latest"


async def test_the_same_program_is_read_once(harness: ControlHarness) -> None:
    for _ in range(3):
        await plan(harness, {"code": NEEDS_GPU})
    assert harness.calls.lanes.count("analysis") == 1
    await plan(harness, {"code": NEEDS_GPU + "\n"})
    assert harness.calls.lanes.count("analysis") == 2


async def test_a_gpu_that_nobody_connected_has_is_told_with_the_nearest(harness: ControlHarness) -> None:
    found = await plan(harness, gpus=4096)
    assert (found["chosen"], found["offers"]) == (None, [])
    assert found["nearest"]["capacity"]["gpus"]
    assert found["why"].startswith("No offer fits. The nearest is ")


async def test_reserved_prices_are_asked_for_by_name(harness: ControlHarness) -> None:
    assert {offer["market"] for offer in (await plan(harness))["offers"]} == {"on_demand"}


async def test_a_simulated_place_is_taken_only_by_name(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, FakeCloud())
    unnamed = await plan(harness, {"limit": 5000})
    whys = {offer["why"] for offer in unnamed["offers"] if offer["backend"] == "cloud"}
    assert whys == {"cloud is simulated. To rehearse there: --backend cloud"}
    named = await plan(harness, backend="cloud")
    assert (named["chosen"]["backend"], named["chosen"]["simulated"]) == ("cloud", True)
    await give_back(harness.ports.db)


async def test_old_prices_say_how_old_they_are(harness: ControlHarness) -> None:
    found = await plan(harness)
    assert found["prices"]["oldest_days"] > 180
    assert f"up to {found['prices']['oldest_days']} days old" in found["prices"]["note"]
    assert "crucible catalog refresh" in found["prices"]["note"]


async def test_what_nobody_knows_is_refused_with_the_nearest(harness: ControlHarness) -> None:
    with pytest.raises(UnknownName) as raised:
        await plan(harness, backend="clod")
    assert raised.value.meant == "cloud"
    with pytest.raises(UnknownName):
        await plan(harness, {"allowed_backends": ("nowhere",)})
    with pytest.raises(UnknownName):
        await plan(harness, {"gpu_types": ("A1000",)})


async def test_wishes_that_contradict_each_other(harness: ControlHarness) -> None:
    with pytest.raises(BadInput) as raised:
        await plan(harness, {"interruptible": False}, market=Market.SPOT)
    assert "reclaimed" in raised.value.what
    with pytest.raises(BadInput):
        await plan(harness, {"optimize": "deadline"})
    with pytest.raises(BadInput, match="on local, but only aws or gcp may"):
        await plan(harness, {"allowed_backends": ("aws", "gcp")}, backend="local")


async def test_a_provider_that_is_connected_speaks_for_itself(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, FakeBackend("aws"))
    found = await plan(harness, {"every_region": True, "limit": 5000})
    assert [offer["runnable"] for offer in found["offers"] if offer["backend"] == "aws"] == [True]
    assert "lambda" in {offer["backend"] for offer in found["offers"]}
    await give_back(harness.ports.db)
