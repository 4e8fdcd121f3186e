from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.world import Rig, give_back, make_rig, other_worker, service

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
async def rig(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path, cloud)
    yield rig
    await give_back(rig.ports.db)


async def cost(rig: Rig, machine: str) -> object:
    machines = (await service(rig).machines.list_machines(OWNER, all=True)).items
    return next(one.cost_micros for one in machines if one.id == machine)


async def ended(rig: Rig) -> str:
    """A machine that is gone since less than a minute."""
    _, runner = await rig.running(backend="cloud")
    machine = (await rig.machine()).id
    await runner.end()
    for _ in range(3):
        await rig.performer.perform_due()
        rig.clock.move(10)
    return machine


async def test_the_providers_word_replaces_our_own_count(rig: Rig, cloud: FakeCloud) -> None:
    await rig.running(backend="cloud")
    machine = (await rig.machine()).id
    rig.clock.move(500)
    cloud.meter[machine] = (Segment(1000.0, 1100.0, 3_600_000), Segment(1100.0, 1160.0, 1_800_000))
    await rig.ledger.round()
    assert await cost(rig, machine) == 100 * 1000 + 60 * 500


async def test_each_instance_of_a_machine_is_billed_by_itself(rig: Rig, cloud: FakeCloud) -> None:
    await rig.running(backend="cloud")
    machine = (await rig.machine()).id
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000, "i-1"),)
    await rig.ledger.round()
    rows = await rig.rows(t.price_segments)
    assert [(row["native_id"], row["rate"]) for row in rows] == [(f"i-{machine}", 3_600_000)]


async def test_a_meter_that_does_not_answer_changes_nothing(rig: Rig, cloud: FakeCloud) -> None:
    await rig.running(backend="cloud")
    before = await rig.rows(t.price_segments)
    cloud.down = Unreachable("It is down.")
    await rig.ledger.round()
    assert await rig.rows(t.price_segments) == before


async def test_a_closed_bill_is_not_asked_for_again(rig: Rig, cloud: FakeCloud) -> None:
    machine = await ended(rig)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    await rig.ledger.round()
    assert not (await rig.rows(t.machines))[-1]["metered"]
    rig.clock.move(FINAL_AFTER)
    await rig.ledger.round()
    assert (await rig.rows(t.machines))[-1]["metered"]
    cloud.meter[machine] = (Segment(0.0, 99.0, 3_600_000),)
    await rig.ledger.round()
    assert await cost(rig, machine) == 10_000


async def test_places_without_a_meter_keep_our_own_count(rig: Rig) -> None:
    await rig.running()
    await rig.ledger.round()
    assert len(await rig.rows(t.price_segments)) == 1


async def test_what_was_made_without_our_knowing_is_paid_for_too(rig: Rig, cloud: FakeCloud) -> None:
    """Its answer was lost, and it had ended before anybody could find it."""
    cloud.answers = ["nothing"]
    job = await rig.submit(backend="cloud")
    await rig.performer.perform_due()
    await service(rig).jobs.cancel(OWNER, job)
    for _ in range(4):
        rig.clock.move(200)
        await rig.performer.perform_due()
    machine = await rig.machine()
    assert (machine.alive, machine.native_id) == (False, None)
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await rig.ledger.round()
    assert await cost(rig, machine.id) == 60_000


async def test_what_lived_unknown_is_paid_for_though_its_provider_tells_no_more(rig: Rig, cloud: FakeCloud) -> None:
    """A list forgets what has ended; before anybody is sure that nothing was made, that may be long ago."""
    cloud.answers = ["nothing"]
    job = await rig.submit(backend="cloud")
    await rig.performer.perform_due()
    await service(rig).jobs.cancel(OWNER, job)
    machine = await rig.machine()
    assert (machine.alive, machine.native_id) == (True, None)
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await rig.ledger.round()
    cloud.meter.clear()
    for _ in range(4):
        rig.clock.move(200)
        await rig.performer.perform_due()
        await rig.ledger.round()
    assert not (await rig.machine()).alive
    assert (await rig.rows(t.machines))[-1]["metered"]
    assert await cost(rig, machine.id) == 60_000


async def test_a_machine_that_was_metered_before_it_is_known_costs_what_the_meter_says(
    rig: Rig, cloud: FakeCloud
) -> None:
    cloud.answers = ["lost"]
    await rig.submit(backend="cloud")
    await rig.performer.perform_due()
    machine = await rig.machine()
    assert machine.native_id is None
    cloud.meter[machine.id] = (Segment(0.0, 60.0, 3_600_000),)
    await rig.ledger.round()
    for _ in range(4):
        rig.clock.move(10)
        await rig.performer.perform_due()
    assert (await rig.machine()).native_id is not None
    assert await cost(rig, machine.id) == 60_000


async def test_an_instance_that_its_provider_forgot_stays_on_the_bill(
    rig: Rig, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.running(backend="cloud")
    machine = (await rig.machine()).id

    def tells(**instances: Segment) -> None:
        found = [Metered(MachineRef("cloud", machine, name, ""), (segment,)) for name, segment in instances.items()]
        monkeypatch.setattr(cloud, "metered", lambda refs: found)

    tells(double=Segment(0.0, 60.0, 3_600_000), first=Segment(0.0, 100.0, 3_600_000))
    await rig.ledger.round()
    assert await cost(rig, machine) == 160_000
    tells(first=Segment(0.0, 500.0, 3_600_000))
    await rig.ledger.round()
    assert await cost(rig, machine) == 560_000


async def test_an_instance_that_was_forgotten_while_it_was_thought_to_run_costs_no_more(
    rig: Rig, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.running(backend="cloud")
    machine, begun = (await rig.machine()).id, rig.clock.now()
    double = Metered(MachineRef("cloud", machine, "double", ""), (Segment(begun, None, 3_600_000),))
    first = Metered(MachineRef("cloud", machine, f"i-{machine}", ""), (Segment(begun, begun + 1.0, 3_600_000),))
    monkeypatch.setattr(cloud, "metered", lambda refs: [double, first])
    await rig.ledger.round()
    rig.clock.move(100)
    monkeypatch.setattr(cloud, "metered", lambda refs: [first])
    for _ in range(3):
        await rig.ledger.round()
        rig.clock.move(1000)
    assert await cost(rig, machine) == 101_000


async def test_a_closed_bill_does_not_grow(rig: Rig, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read when its machine still ran is written after that has gone; then its provider tells no more."""
    begun = rig.clock.now()
    machine = await ended(rig)
    gone = (await rig.machine()).gone_at
    assert gone is not None
    cloud.meter[machine] = (Segment(begun, None, 3_600_000),)
    await rig.ledger.round()
    cloud.meter.clear()
    rig.clock.move(FINAL_AFTER)
    await rig.ledger.round()
    assert (await rig.rows(t.machines))[-1]["metered"]
    rig.clock.move(5000)
    assert await cost(rig, machine) == round((gone - begun) * 1000)


async def test_a_second_instance_counts_though_the_meter_has_told_of_the_first_alone(
    rig: Rig, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.answers = ["nothing", "ok"]
    await rig.submit(backend="cloud")
    await rig.performer.perform_due()
    machine = (await rig.machine()).id
    first = Metered(MachineRef("cloud", machine, "i-lost", ""), (Segment(0.0, 60.0, 3_600_000),))
    monkeypatch.setattr(cloud, "metered", lambda refs: [first])
    await rig.ledger.round()
    for _ in range(4):
        rig.clock.move(10)
        await rig.performer.perform_due()
    assert (await rig.machine()).native_id == f"i-{machine}"
    assert [row["native_id"] for row in await rig.rows(t.price_segments)] == ["i-lost", ""]


async def test_who_lost_the_duty_writes_nothing(rig: Rig, cloud: FakeCloud) -> None:
    await rig.running(backend="cloud")
    machine = (await rig.machine()).id
    before = await rig.rows(t.price_segments)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    rig.clock.move(100)
    other = await other_worker(rig, "w2")
    await other.duties.renew(other.ports.db, rig.clock)
    await rig.ledger.round()
    assert await rig.rows(t.price_segments) == before
    await other.ledger.round()
    assert await cost(rig, machine) == 10_000


async def test_a_reading_that_was_long_on_its_way_closes_no_bill(
    rig: Rig, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for when the bill could still change; what came after it is read in the next round."""
    machine = await ended(rig)
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000),)
    read = cloud.metered

    def late(refs: Sequence[MachineRef]) -> Sequence[Metered]:
        found = read(refs)
        rig.clock.move(FINAL_AFTER)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cloud, "metered", late)
        await rig.ledger.round()
    assert not (await rig.rows(t.machines))[-1]["metered"]
    cloud.meter[machine] = (Segment(0.0, 10.0, 3_600_000), Segment(10.0, 20.0, 3_600_000))
    await rig.duties.renew(rig.ports.db, rig.clock)
    await rig.ledger.round()
    assert await cost(rig, machine) == 20_000
