from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.control.fakes import FakeBackend, Gate, InlineCalls
from tests.control.world import Rig, job_spec, join

from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.errors import UnknownName, Unreachable
from crucible.core.lifecycle import JobState


async def test_before_it_is_asked_a_place_has_no_offers() -> None:
    places = ConnectedBackends({"local": FakeBackend()}, InlineCalls())
    assert places.offers("local") == ()
    assert places.runnable_offer("local") is None
    assert places.check(job_spec(cpus=400)).cpus == 400, "nobody knows yet that it is too large"


async def test_a_refreshed_place_offers_what_it_has() -> None:
    places = ConnectedBackends({"local": FakeBackend()}, InlineCalls())
    await places.refresh()
    place = places.runnable_offer("local")
    assert place is not None
    assert place.offer.instance_type == "this computer"


async def test_one_place_that_does_not_answer_stops_no_other() -> None:
    quiet, well = FakeBackend("a_quiet", down=Unreachable("No answer.")), FakeBackend("well")
    places = ConnectedBackends({"a_quiet": quiet, "well": well}, InlineCalls())
    await places.refresh()
    assert places.offers("a_quiet") == ()
    assert places.offers("well")


async def test_a_place_that_hangs_delays_no_other() -> None:
    places = ConnectedBackends({"a_slow": FakeBackend("a_slow"), "well": FakeBackend("well")}, gate := Gate("a_slow"))
    asking = asyncio.create_task(places.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    assert (places.offers("a_slow"), len(places.offers("well"))) == ((), 1)
    gate.open.set()
    await asking
    assert places.offers("a_slow")


async def test_a_place_that_falls_silent_keeps_its_last_offers() -> None:
    backend = FakeBackend()
    places = ConnectedBackends({"local": backend}, InlineCalls())
    await places.refresh()
    backend.down = Unreachable("No answer.")
    await places.refresh()
    assert places.offers("local")


async def test_names_are_sorted_and_unknown_ones_refused(two_places: Rig) -> None:
    assert two_places.places.names() == ["local", "ssh"]
    with pytest.raises(UnknownName):
        two_places.places.get("gcp")


async def test_a_job_for_a_place_that_is_not_ready_waits(rig: Rig, tmp_path: Path) -> None:
    cold = join(rig.ports, rig.clock, rig.calls, rig.backends, tmp_path)
    await cold.duties.renew(rig.ports.db, rig.clock)
    job = await cold.submit()
    assert (await cold.world(job)).job.state is JobState.QUEUED
    await cold.places.refresh()
    await cold.place()
    assert (await cold.world(job)).live is not None
