"""Test what the simulated users submit."""

from __future__ import annotations

import pytest

from crucible.core.compute.offers import Market
from crucible.core.job.spec import JobSpec
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import VirtualLoop
from crucible.simulation.faults.world.api import ApiClient
from crucible.simulation.faults.world.people import SimulatedUsers
from crucible.simulation.faults.world.ports import WallClock

SEEDS = range(1, 200)


def submitted(seed: int, extra: list[str]) -> list[JobSpec]:
    """Return the jobs of a seed in a world with these backends besides the cloud and the laptop."""
    loop = VirtualLoop()  # type: ignore[abstract]  # as in crucible.simulation.faults.run
    faults = FaultRates(RandomStream(seed, "weather"), loop.time)
    api, truth = ApiClient(None, faults), GroundTruth(lambda what: None)  # type: ignore[arg-type]
    users = SimulatedUsers(api, WallClock(loop), faults, truth, Trace(loop.time), RandomStream(seed, "people"))
    users.choose_among(extra, RandomStream(seed, "choices"))
    users.ask_for_gangs(RandomStream(seed, "gangs"))
    return [users._spec(n, b"code") for n in range(5)]


def able(spec: JobSpec) -> set[str]:
    """Return the backends that can hold the job, in a world where the cluster bills."""
    cluster = spec.market is Market.ON_DEMAND or spec.spot_fallback
    return {
        "cloud",
        *(("cluster",) if cluster else ()),
        *(("hosts",) if spec.nodes <= 2 else ()),
        *(("local", "containers") if spec.nodes == 1 else ()),
    }


@pytest.mark.parametrize("extra", [[], ["containers", "hosts"], ["hosts", "cluster"], ["cluster"]])
def test_a_job_names_a_backend_that_can_hold_it(extra: list[str]) -> None:
    specs = [spec for seed in SEEDS for spec in submitted(seed, extra)]
    assert [spec for spec in specs if not able(spec).intersection(spec.backends)] == []
    assert {spec.nodes for spec in specs} == {1, 2, 3}


def test_jobs_ask_for_spot_alone_for_spot_first_and_for_on_demand() -> None:
    specs = [spec for seed in SEEDS for spec in submitted(seed, ["cluster"]) if "cluster" in spec.backends]
    kinds = {(spec.market, spec.spot_fallback) for spec in specs}
    assert kinds == {(Market.SPOT, False), (Market.SPOT, True), (Market.ON_DEMAND, False)}
