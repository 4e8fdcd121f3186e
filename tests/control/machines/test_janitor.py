from __future__ import annotations

from dataclasses import replace

from tests.control.fakes import DEPLOYMENT, OTHER_DEPLOYMENT, Made
from tests.control.world import Rig, new_id

from crucible.backends.base import NotYetGone, Seen
from crucible.control.db import schema as t
from crucible.control.machines.janitor import JanitorReport, release_idle_pools
from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f

STRANGER = new_id(Prefix.MACHINE, 99)


async def test_what_is_known_and_wanted_is_left_alone(rig: Rig) -> None:
    await rig.running()
    assert await rig.janitor.tidy() == JanitorReport()
    assert rig.backend.terminated == []


async def test_a_stranger_with_our_tag_is_reported_and_untouched(rig: Rig) -> None:
    ref = rig.backend.add(STRANGER)
    assert await rig.janitor.tidy() == JanitorReport(unknown=(ref,))
    assert rig.backend.terminated == []
    assert rig.backend.made[STRANGER].seen is Seen.UP
    assert await rig.rows(t.machines) == []


async def test_another_deployments_machines_are_never_seen(rig: Rig) -> None:
    rig.backend.add(STRANGER, OTHER_DEPLOYMENT)
    assert await rig.janitor.tidy() == JanitorReport()


async def leftover(rig: Rig) -> str:
    """A machine that was gone, and is there again."""
    await rig.running()
    machine = (await rig.machine()).id
    await rig.change_machine(machine, f.SeenGone(), f.SeenGone())
    return machine


async def test_a_leftover_is_ended_until_it_is_gone(rig: Rig) -> None:
    machine = await leftover(rig)
    rig.backend.ends = [NotYetGone("Stopping."), "ok"]
    assert [ref.machine for ref in (await rig.janitor.tidy()).leftovers] == [machine]
    assert [ref.machine for ref in (await rig.janitor.tidy()).leftovers] == [machine]
    assert await rig.janitor.tidy() == JanitorReport()
    assert (await rig.machine(machine)).state is MachineState.GONE


async def test_a_leftover_that_does_not_end_hides_no_other(rig: Rig) -> None:
    machine = await leftover(rig)
    stranger = rig.backend.add(STRANGER)
    rig.backend.ends = [NotYetGone("Stopping.")]
    found = await rig.janitor.tidy()
    assert [ref.machine for ref in found.leftovers] == [machine]
    assert found.unknown == (stranger,)


async def test_a_machine_being_released_is_the_performers(rig: Rig) -> None:
    await rig.running()
    await rig.change_machine((await rig.machine()).id, f.Unwanted("enough"))
    assert await rig.janitor.tidy() == JanitorReport()
    assert rig.backend.terminated == []


async def test_a_double_of_a_claimed_machine_is_ended_and_the_machine_left_alone(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    double = replace(rig.backend.made[machine.id].ref, native_id="i-double")
    rig.backend.made["double"] = Made(double, DEPLOYMENT)
    assert await rig.janitor.tidy() == JanitorReport(duplicates=(double,))
    assert rig.backend.terminated == [double]
    assert await rig.machine() == machine


async def test_before_a_host_has_claimed_it_nobody_knows_which_is_the_double(rig: Rig) -> None:
    await rig.submit()
    await rig.performer.perform_due()
    machine = await rig.machine()
    rig.backend.made["double"] = Made(replace(rig.backend.made[machine.id].ref, native_id="i-double"), DEPLOYMENT)
    assert await rig.janitor.tidy() == JanitorReport()


async def test_one_places_trouble_stops_no_other(two_backends: Rig) -> None:
    two_backends.backend.down = Unreachable("No answer.")
    ref = two_backends.backends["ssh"].add(STRANGER)
    assert (await two_backends.janitor.tidy()).unknown == (ref,)


async def test_every_machine_being_released_has_an_open_termination(rig: Rig) -> None:
    await rig.running()
    machine = (await rig.machine()).id
    await rig.change_machine(machine, f.Unwanted("enough"))
    await rig.janitor.release_stuck()
    assert await rig.count(t.effects) == 2, "it has one already"
    await rig.sql(lambda conn: conn.execute(t.effects.update().values(done=True)).rowcount)
    await rig.janitor.release_stuck()
    await rig.janitor.release_stuck()
    assert [e["done"] for e in await rig.rows(t.effects)] == [True, True, False]
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_machine_that_nobody_uses_is_released(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.end()
    assert await rig.writer.write(release_idle_pools) == 1
    assert (await rig.machine()).state is MachineState.RELEASING
    assert await rig.writer.write(release_idle_pools) == 0
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_machine_that_someone_uses_stays(rig: Rig) -> None:
    await rig.running()
    assert await rig.writer.write(release_idle_pools) == 0
    assert (await rig.machine()).state is MachineState.UP


async def test_a_machine_of_an_attempt_is_not_the_pools(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.end()
    await rig.sql(lambda conn: conn.execute(t.machines.update().values(owner="attempt:x")).rowcount)
    assert await rig.writer.write(release_idle_pools) == 0
