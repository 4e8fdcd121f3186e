from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.harness import ControlHarness, give_back, make_harness, other_worker, service

from crucible.backends.base import MachineRef, Metered
from crucible.control.db import schema as t
from crucible.control.machines.ledger import FINAL_AFTER
from crucible.core.compute.pricing import Segment
from crucible.core.errors import Unreachable
from crucible.core.people.identity import OWNER


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
async def harness(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, cloud)
    yield harness
    await give_back(harness.ports.db)


async def cost(harness: ControlHarness, machine: str) -> object:
    machines = (await service(harness).machines.list_machines(OWNER, all=True)).items
    return next(one.cost_micros for one in machines if one.id == machine)


async def ended(harness: ControlHarness) -> str:
    """A machine that is gone since less than a minute."""
    _, runner = await harness.running(backend="cloud")
    machine = (await harness.machine()).id
    await runner.end()
    for _ in range(3):
        await harness.performer.perform_due()
        harness.clock.move(10)
    return machine


async def test_the_providers_word_replaces_our_own_count(harness: ControlHarness, cloud: FakeCloud) -> None:
    await harness.running(backend="cloud")
    machine = (await harness.machine()).id
    harness.clock.move(500)
    cloud.meter[machine] = (Segment(1000.0, 1100.0, 3_600_000), Segment(1100.0, 1160.0, 1_800_000))
    await harness.ledger.round()
    assert await cost(harness, machine) == 100 * 1000 + 60 * 500


async def test_each_instance_of_a_machine_is_billed_by_itself(harness: ControlHarness, cloud: FakeCloud) -> None:
    await harness.running(backend="cloud")
    machine = (await harness.machine()).id
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000, "i-1"),)
    await harness.ledger.round()
    rows = await harness.rows(t.price_segments)
    assert [(row["native_id"], row["rate"]) for row in rows] == [(f"i-{machine}", 3_600_000)]


async def test_a_meter_that_does_not_answer_changes_nothing(harness: ControlHarness, cloud: FakeCloud) -> None:
    await harness.running(backend="cloud")
    before = await harness.rows(t.price_segments)
    cloud.down = Unreachable("It is down.")
    await harness.ledger.round()
    assert await harness.rows(t.price_segments) == before


async def test_a_closed_bill_is_not_asked_for_again(harness: ControlHarness, cloud: FakeCloud) -> None:
    machine = await ended(harness)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    await harness.ledger.round()
    assert not (await harness.rows(t.machines))[-1]["metered"]
    harness.clock.move(FINAL_AFTER)
    await harness.ledger.round()
    assert (await harness.rows(t.machines))[-1]["metered"]
    cloud.meter[machine] = (Segment(0.0, 99.0, 3_600_000),)
    await harness.ledger.round()
    assert await cost(harness, machine) == 10_000


async def test_places_without_a_meter_keep_our_own_count(harness: ControlHarness) -> None:
    await harness.running()
    await harness.ledger.round()
    assert len(await harness.rows(t.price_segments)) == 1


async def test_what_was_made_without_our_knowing_is_paid_for_too(harness: ControlHarness, cloud: FakeCloud) -> None:
    """Its answer was lost, and it had ended before anybody could find it."""
    cloud.answers = ["nothing"]
    job = await harness.submit(backend="cloud")
    await harness.performer.perform_due()
    await service(harness).jobs.cancel(OWNER, job)
    for _ in range(4):
        harness.clock.move(200)
        await harness.performer.perform_due()
    machine = await harness.machine()
    assert (machine.alive, machine.native_id) == (False, None)
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await harness.ledger.round()
    assert await cost(harness, machine.id) == 60_000


async def test_what_lived_unknown_is_paid_for_though_its_provider_tells_no_more(
    harness: ControlHarness, cloud: FakeCloud
) -> None:
    """A list forgets what has ended; before anybody is sure that nothing was made, that may be long ago."""
    cloud.answers = ["nothing"]
    job = await harness.submit(backend="cloud")
    await harness.performer.perform_due()
    await service(harness).jobs.cancel(OWNER, job)
    machine = await harness.machine()
    assert (machine.alive, machine.native_id) == (True, None)
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await harness.ledger.round()
    cloud.meter.clear()
    for _ in range(4):
        harness.clock.move(200)
        await harness.performer.perform_due()
        await harness.ledger.round()
    assert not (await harness.machine()).alive
    assert (await harness.rows(t.machines))[-1]["metered"]
    assert await cost(harness, machine.id) == 60_000


async def test_a_machine_that_was_metered_before_it_is_known_costs_what_the_meter_says(
    harness: ControlHarness, cloud: FakeCloud
) -> None:
    cloud.answers = ["lost"]
    await harness.submit(backend="cloud")
    await harness.performer.perform_due()
    machine = await harness.machine()
    assert machine.native_id is None
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await harness.ledger.round()
    for _ in range(4):
        harness.clock.move(10)
        await harness.performer.perform_due()
    assert (await harness.machine()).native_id is not None
    assert await cost(harness, machine.id) == 60_000


async def test_an_instance_that_its_provider_forgot_stays_on_the_bill(
    harness: ControlHarness, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.running(backend="cloud")
    machine = (await harness.machine()).id

    def tells(**instances: Segment) -> None:
        found = [Metered(MachineRef("cloud", machine, name, ""), (segment,)) for name, segment in instances.items()]
        monkeypatch.setattr(cloud, "metered", lambda refs: found)

    tells(double=Segment(0.0, 60.0, 3_600_000), first=Segment(0.0, 100.0, 3_600_000))
    await harness.ledger.round()
    assert await cost(harness, machine) == 160_000
    tells(first=Segment(0.0, 500.0, 3_600_000))
    await harness.ledger.round()
    assert await cost(harness, machine) == 560_000


async def test_an_instance_that_was_forgotten_while_it_was_thought_to_run_costs_no_more(
    harness: ControlHarness, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.running(backend="cloud")
    machine, begun = (await harness.machine()).id, harness.clock.now()
    double = Metered(MachineRef("cloud", machine, "double", ""), (Segment(begun, None, 3_600_000),))
    first = Metered(MachineRef("cloud", machine, f"i-{machine}", ""), (Segment(begun, begun + 1.0, 3_600_000),))
    monkeypatch.setattr(cloud, "metered", lambda refs: [double, first])
    await harness.ledger.round()
    harness.clock.move(100)
    monkeypatch.setattr(cloud, "metered", lambda refs: [first])
    for _ in range(3):
        await harness.ledger.round()
        harness.clock.move(1000)
    assert await cost(harness, machine) == 101_000


async def test_a_closed_bill_does_not_grow(
    harness: ControlHarness, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read when its machine still ran is written after that has gone; then its provider tells no more."""
    begun = harness.clock.now()
    machine = await ended(harness)
    gone = (await harness.machine()).gone_at
    assert gone is not None
    cloud.meter[machine] = (Segment(begun, None, 3_600_000),)
    await harness.ledger.round()
    cloud.meter.clear()
    harness.clock.move(FINAL_AFTER)
    await harness.ledger.round()
    assert (await harness.rows(t.machines))[-1]["metered"]
    harness.clock.move(5000)
    assert await cost(harness, machine) == round((gone - begun) * 1000)


async def test_a_second_instance_counts_though_the_meter_has_told_of_the_first_alone(
    harness: ControlHarness, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.answers = ["nothing", "ok"]
    await harness.submit(backend="cloud")
    await harness.performer.perform_due()
    machine = (await harness.machine()).id
    first = Metered(MachineRef("cloud", machine, "i-lost", ""), (Segment(0.0, 60.0, 3_600_000),))
    monkeypatch.setattr(cloud, "metered", lambda refs: [first])
    await harness.ledger.round()
    for _ in range(4):
        harness.clock.move(10)
        await harness.performer.perform_due()
    assert (await harness.machine()).native_id == f"i-{machine}"
    assert [row["native_id"] for row in await harness.rows(t.price_segments)] == ["i-lost", ""]


async def test_who_lost_the_duty_writes_nothing(harness: ControlHarness, cloud: FakeCloud) -> None:
    await harness.running(backend="cloud")
    machine = (await harness.machine()).id
    before = await harness.rows(t.price_segments)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    harness.clock.move(100)
    other = await other_worker(harness, "w2")
    await other.duties.renew(other.ports.db, harness.clock)
    await harness.ledger.round()
    assert await harness.rows(t.price_segments) == before
    await other.ledger.round()
    assert await cost(harness, machine) == 10_000


async def test_a_reading_that_was_long_on_its_way_closes_no_bill(
    harness: ControlHarness, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for when the bill could still change; what came after it is read in the next round."""
    machine = await ended(harness)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    read = cloud.metered

    def late(refs: Sequence[MachineRef]) -> Sequence[Metered]:
        found = read(refs)
        harness.clock.move(FINAL_AFTER)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cloud, "metered", late)
        await harness.ledger.round()
    assert not (await harness.rows(t.machines))[-1]["metered"]
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000), Segment(10.0, 20.0, 3_600_000))
    await harness.duties.renew(harness.ports.db, harness.clock)
    await harness.ledger.round()
    assert await cost(harness, machine) == 20_000
