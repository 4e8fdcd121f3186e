from __future__ import annotations

from dataclasses import replace

from tests.control.fakes import DEPLOYMENT, OTHER_DEPLOYMENT, Made
from tests.control.harness import ControlHarness, new_id

from crucible.backends.base import NotYetGone, Reach, Seen
from crucible.control.db import schema as t
from crucible.control.machines.janitor import JanitorReport, release_idle_machines
from crucible.control.upkeep import restore_hold
from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f

STRANGER = new_id(Prefix.MACHINE, 99)


async def test_what_is_known_and_wanted_is_left_alone(harness: ControlHarness) -> None:
    await harness.running()
    assert await harness.janitor.tidy() == JanitorReport()
    assert harness.backend.terminated == []


async def test_a_stranger_with_our_tag_is_reported_and_untouched(harness: ControlHarness) -> None:
    ref = harness.backend.add(STRANGER)
    assert await harness.janitor.tidy() == JanitorReport(unknown=(ref,))
    assert harness.backend.terminated == []
    assert harness.backend.made[STRANGER].seen is Seen.UP
    assert await harness.rows(t.machines) == []


async def test_another_deployments_machines_are_never_seen(harness: ControlHarness) -> None:
    harness.backend.add(STRANGER, OTHER_DEPLOYMENT)
    assert await harness.janitor.tidy() == JanitorReport()


async def leftover(harness: ControlHarness) -> str:
    """A machine that was gone, and is there again."""
    await harness.running()
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    return machine


async def test_a_leftover_is_ended_until_it_is_gone(harness: ControlHarness) -> None:
    machine = await leftover(harness)
    harness.backend.ends = [NotYetGone("Stopping."), "ok"]
    assert [ref.machine for ref in (await harness.janitor.tidy()).leftovers] == [machine]
    assert [ref.machine for ref in (await harness.janitor.tidy()).leftovers] == [machine]
    assert await harness.janitor.tidy() == JanitorReport()
    assert (await harness.machine(machine)).state is MachineState.GONE


async def test_a_leftover_that_does_not_end_hides_no_other(harness: ControlHarness) -> None:
    machine = await leftover(harness)
    stranger = harness.backend.add(STRANGER)
    harness.backend.ends = [NotYetGone("Stopping.")]
    found = await harness.janitor.tidy()
    assert [ref.machine for ref in found.leftovers] == [machine]
    assert found.unknown == (stranger,)


async def test_leftovers_are_ended_though_a_part_of_the_provider_does_not_answer(harness: ControlHarness) -> None:
    machine = await leftover(harness)
    stranger = harness.backend.add(STRANGER)
    harness.backend.partly_down = True
    found = await harness.janitor.tidy()
    assert ([ref.machine for ref in found.leftovers], found.unknown) == ([machine], (stranger,))
    assert [ref.machine for ref in harness.backend.terminated] == [machine]


async def test_a_restore_is_not_confirmed_by_an_incomplete_list(harness: ControlHarness) -> None:
    await harness.sql(
        lambda conn: conn.execute(t.meta.insert().values(key=restore_hold.RESTORED_AT, value="1")).rowcount
    )
    before = await harness.rows(t.meta)
    harness.backend.partly_down = True
    await harness.janitor.tidy()
    assert await harness.rows(t.meta) == before
    harness.backend.partly_down = False
    await harness.janitor.tidy()
    assert await harness.rows(t.meta) != before


async def test_a_machine_being_released_is_the_performers(harness: ControlHarness) -> None:
    await harness.running()
    await harness.change_machine((await harness.machine()).id, f.Unwanted("enough"))
    assert await harness.janitor.tidy() == JanitorReport()
    assert harness.backend.terminated == []


async def test_a_double_of_a_claimed_machine_is_ended_and_the_machine_left_alone(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    double = replace(harness.backend.made[machine.id].ref, native_id="i-double")
    harness.backend.made["double"] = Made(double, DEPLOYMENT)
    assert await harness.janitor.tidy() == JanitorReport(duplicates=(double,))
    assert harness.backend.terminated == [double]
    assert await harness.machine() == machine


async def test_before_a_host_has_claimed_it_nobody_knows_which_is_the_double(harness: ControlHarness) -> None:
    await harness.submit()
    await harness.performer.perform_due()
    machine = await harness.machine()
    harness.backend.made["double"] = Made(
        replace(harness.backend.made[machine.id].ref, native_id="i-double"), DEPLOYMENT
    )
    assert await harness.janitor.tidy() == JanitorReport()


async def test_one_places_trouble_stops_no_other(two_backends: ControlHarness) -> None:
    two_backends.backend.down = Unreachable("No answer.")
    ref = two_backends.backends["ssh"].add(STRANGER)
    assert (await two_backends.janitor.tidy()).unknown == (ref,)


async def test_every_machine_being_released_has_an_open_termination(harness: ControlHarness) -> None:
    await harness.running()
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.Unwanted("enough"))
    await harness.janitor.release_stuck()
    assert await harness.count(t.effects) == 2, "it has one already"
    await harness.sql(lambda conn: conn.execute(t.effects.update().values(done=True)).rowcount)
    await harness.janitor.release_stuck()
    await harness.janitor.release_stuck()
    assert [e["done"] for e in await harness.rows(t.effects)] == [True, True, False]
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_machine_that_nobody_uses_is_released(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    assert await harness.writer.write(release_idle_machines) == 1
    assert (await harness.machine()).state is MachineState.RELEASING
    assert await harness.writer.write(release_idle_machines) == 0
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_machine_that_someone_uses_stays(harness: ControlHarness) -> None:
    await harness.running()
    assert await harness.writer.write(release_idle_machines) == 0
    assert (await harness.machine()).state is MachineState.UP


async def test_a_machine_of_an_attempt_is_not_the_pools(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    await harness.sql(lambda conn: conn.execute(t.machines.update().values(owner="attempt:x")).rowcount)
    assert await harness.writer.write(release_idle_machines) == 0


async def test_a_shared_machine_of_another_computer_is_released_once_it_stays_idle(harness: ControlHarness) -> None:
    harness.backend.capabilities = replace(harness.backend.capabilities, reach=Reach.TUNNEL)
    _, runner = await harness.running()
    await harness.janitor.release_idle()
    await runner.end()
    await harness.janitor.release_idle()
    assert (await harness.machine()).state is MachineState.UP, "another job may come at once"
    await harness.janitor.release_idle()
    assert (await harness.machine()).state is MachineState.RELEASING


async def test_the_machine_of_this_computer_stays_idle(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    for _ in range(3):
        await harness.janitor.release_idle()
    assert (await harness.machine()).state is MachineState.UP
