"""Test parts of the simulated world that no single seed covers."""

from __future__ import annotations

import asyncio

import pytest

from crucible.core.compute.offers import Market
from crucible.simulation.faults.fault_rates import RATES, SPELL_SECONDS, FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import VirtualLoop
from crucible.simulation.faults.world.attempt_folder import SEGMENT_LINES, SimulatedAttemptFolder
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.machine import DRIFT, MachineEnvironment, SimulatedMachine
from crucible.simulation.faults.world.network import Network
from crucible.simulation.faults.world.ports import WallClock
from crucible.simulation.faults.world.store import MemoryStore
from crucible.storage import StoreUnreachable


def environment(loop: VirtualLoop) -> MachineEnvironment:
    faults, rng = FaultRates(RandomStream(1, "weather"), loop.time), RandomStream(1, "machines")
    network = Network(None, faults, rng)  # type: ignore[arg-type]
    return MachineEnvironment(network, GroundTruth(lambda what: None), Trace(loop.time), rng)


def test_clocks_of_machines_have_nothing_in_common() -> None:
    loop = VirtualLoop()
    shared = environment(loop)
    one, other = (SimulatedMachine(name, name, "", shared, lambda: None, 60.0) for name in ("one", "other"))

    async def scene() -> None:
        began = one.clock(), other.clock()
        assert abs(began[0] - began[1]) > 60
        await asyncio.sleep(1000)
        for machine, then in zip((one, other), began, strict=True):
            assert 1000 * (1 - DRIFT) <= machine.clock() - then <= 1000 * (1 + DRIFT)

    loop.run_until_complete(scene())


def test_a_clock_may_stand_still_while_its_machine_sleeps() -> None:
    loop = VirtualLoop()
    machine = SimulatedMachine("one", "one", "", environment(loop), lambda: None, 60.0)

    async def scene() -> None:
        before = machine.clock()
        await asyncio.sleep(3600)
        machine.stood_still(3600)
        assert machine.clock() == pytest.approx(before)

    loop.run_until_complete(scene())


def test_output_is_cut_once_and_stays_as_it_was_cut() -> None:
    folder = SimulatedAttemptFolder(None, None, None)  # type: ignore[arg-type]
    for n in range(SEGMENT_LINES + 1):
        folder.save(n)
    assert [segment.count(b"\n") for segment in folder.segments] == [SEGMENT_LINES]
    folder.write("exits", last=True)
    assert len(folder.segments) == 2
    assert not folder.is_uploaded
    folder.uploaded, folder.shipped = SEGMENT_LINES + 1, 2
    assert folder.is_uploaded


def test_a_full_disk_outlasts_the_weather_and_nothing_else_does() -> None:
    now = [0.0]
    faults = FaultRates(RandomStream(1, "weather"), lambda: now[0])
    for name in ("disk", "cloud", "store away"):
        faults.storm(name, 100.0)
    faults.end()
    assert [faults.storming(name) for name in ("disk", "cloud", "store away")] == [True, False, False]
    now[0] = 101.0
    assert not faults.storming("disk")


def test_a_store_that_is_away_does_nothing() -> None:
    faults = FaultRates(RandomStream(1, "weather"), lambda: 0.0)
    store = MemoryStore(faults)
    store.objects["key"] = b"data"
    faults.storm("store away", 10.0)
    for work in (lambda: store.put("other", b"data"), lambda: store.delete("key"), lambda: store.get("key")):
        with pytest.raises(StoreUnreachable):
            work()
    assert store.objects == {"key": b"data"}


def test_that_a_zone_has_capacity_again_is_known_after_a_while() -> None:
    loop = VirtualLoop()
    cloud = Cloud(loop, environment(loop), FaultRates(RandomStream(1, "weather"), loop.time), RandomStream(1, "cloud"))
    kind = ("north-1", Market.SPOT)

    async def scene() -> None:
        await asyncio.sleep(1000)
        assert "north-1" in cloud.zones_in_stock(Market.SPOT, 900)
        cloud.sell_out(kind)
        assert "north-1" not in cloud.zones_in_stock(Market.SPOT, 900)
        cloud.restock(kind)
        assert kind not in cloud.sold_out
        assert "north-1" not in cloud.zones_in_stock(Market.SPOT, 900)
        assert "north-1" in cloud.zones_in_stock(Market.ON_DEMAND, 900)
        await asyncio.sleep(901)
        assert "north-1" in cloud.zones_in_stock(Market.SPOT, 900)

    loop.run_until_complete(scene())


def test_a_clock_that_is_set_says_when() -> None:
    loop = VirtualLoop()
    clock = WallClock(loop)

    async def scene() -> None:
        await asyncio.sleep(50)
        before = clock.now()
        clock.step(3600)
        assert (clock.now() - before, clock.stepped_at) == (3600, 50)

    loop.run_until_complete(scene())


def test_what_a_provider_does_wrong_comes_in_spells_and_nothing_else_does() -> None:
    now = [0.0]
    faults = FaultRates(RandomStream(1, "weather"), lambda: now[0])
    struck: dict[str, list[int]] = {"create.lost": [], "request.twice": []}
    for spell in range(40):
        now[0] = spell * SPELL_SECONDS
        for fault, counts in struck.items():
            counts.append(sum(faults.strikes(fault) for _ in range(400)))
    expected = 400 * RATES["create.lost"]
    assert min(struck["create.lost"]) < 0.5 * expected < 1.5 * expected < max(struck["create.lost"])
    assert sum(struck["create.lost"]) > 0.7 * 40 * expected
    assert min(struck["request.twice"]) > 0
