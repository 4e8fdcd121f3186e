from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.fakes import DEPLOYMENT, OTHER_DEPLOYMENT, Made
from tests.control.harness import ControlHarness, new_id, service

from crucible.backends.base import LaunchUnknown, NotYetGone, Seen
from crucible.control.db import schema as t
from crucible.core.errors import Conflict, Forbidden, NotFound, Unreachable
from crucible.core.ids import Prefix, short
from crucible.core.lifecycle import MachineState
from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.core.views.compute import OrphanView

OPERATOR = Identity("usr-9", "ops", LoginMethod.SESSION, admin=True)
STRANGER = new_id(Prefix.MACHINE, 99)


async def test_machines_that_are_gone_are_listed_when_asked_for(harness: ControlHarness) -> None:
    await harness.running()
    control = service(harness)
    assert len((await control.machines.list_machines(OWNER)).items) == 1
    machine = (await harness.machine()).id
    await control.machines.terminate(OWNER, machine)
    harness.backend.show(machine, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    assert (await control.machines.list_machines(OWNER)).items == ()
    assert len((await control.machines.list_machines(OWNER, all=True)).items) == 1


async def test_a_person_may_end_one_of_ours_by_a_short_id(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    view = await service(harness).machines.terminate(OWNER, short(machine.id))
    assert view.state == "releasing"
    assert (await harness.machine()).state is MachineState.RELEASING


async def test_a_machine_whose_provider_never_answers_again_can_be_declared_lost(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    machine, machines = await harness.machine(), service(harness).machines
    harness.backend.down = Unreachable("The host does not answer.")
    await machines.terminate(OWNER, machine.id)
    while await harness.performer.perform_due():
        pass
    (view,) = (await machines.list_machines(OWNER)).items
    assert view.detail == "a person ended it; it does not end yet: The host does not answer."
    await harness.poller.poll()
    assert (await harness.machine()).state is MachineState.RELEASING
    lost = await machines.declare_lost(OPERATOR, machine.id)
    assert (lost.state, lost.detail) == ("gone", "ops declared it lost")
    assert await machines.declare_lost(OPERATOR, short(machine.id)) == lost
    assert "machine.declare_lost" in {row["action"] for row in await harness.rows(t.audit)}
    harness.clock.move(3600)
    await harness.reconciler.round()
    assert (await harness.world(job)).attempts[0].ended_at is not None


async def test_one_that_returns_after_it_was_declared_lost_is_ended(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    harness.backend.down = Unreachable("The host does not answer.")
    await service(harness).machines.declare_lost(OWNER, machine.id)
    harness.backend.down = None
    assert [ref.machine for ref in (await harness.janitor.tidy()).leftovers] == [machine.id]
    assert [ref.machine for ref in harness.backend.terminated] == [machine.id]


async def test_only_operators_declare_a_machine_lost_and_only_while_its_provider_does_not_answer(
    harness: ControlHarness,
) -> None:
    await harness.running()
    machine, machines = await harness.machine(), service(harness).machines
    with pytest.raises(Conflict, match="is not lost: local answers") as caught:
        await machines.declare_lost(OWNER, machine.id)
    assert caught.value.fix == f"Terminate it: crucible machines terminate {short(machine.id)}"
    harness.backend.show(machine.id, Seen.UNREACHABLE)
    with pytest.raises(Forbidden):
        await machines.declare_lost(replace(OPERATOR, admin=False), machine.id)
    assert await harness.machine() == machine
    with pytest.raises(NotFound):
        await machines.declare_lost(OWNER, STRANGER)
    assert (await machines.declare_lost(OWNER, machine.id)).gone


async def test_a_machine_without_an_id_of_its_provider_can_be_declared_lost(harness: ControlHarness) -> None:
    await harness.submit()
    await harness.place()
    harness.backend.answers = [LaunchUnknown("No answer.")]
    await harness.performer.perform_due()
    machines, machine = service(harness).machines, await harness.machine()
    with pytest.raises(Conflict):
        await machines.declare_lost(OWNER, machine.id)
    harness.backend.down = Unreachable("The host does not answer.")
    assert (await machines.declare_lost(OWNER, machine.id)).gone


async def test_orphans_are_listed_and_left_alone(harness: ControlHarness) -> None:
    harness.backend.add(STRANGER)
    harness.backend.add(new_id(Prefix.MACHINE, 98), OTHER_DEPLOYMENT)
    (orphan,) = (await service(harness).machines.list_orphans(OWNER)).items
    assert (orphan.machine, orphan.native_id) == (STRANGER, f"i-{STRANGER}")
    assert harness.backend.terminated == []


@pytest.mark.parametrize("ref", [STRANGER, short(STRANGER), f"i-{STRANGER}"])
async def test_an_orphan_is_ended_on_command(harness: ControlHarness, ref: str) -> None:
    harness.backend.add(STRANGER)
    await service(harness).machines.terminate(OWNER, ref)
    assert [r.machine for r in harness.backend.terminated] == [STRANGER]
    assert (await service(harness).machines.list_orphans(OWNER)).items == ()


async def test_another_deployments_machine_cannot_be_named(harness: ControlHarness) -> None:
    theirs = new_id(Prefix.MACHINE, 98)
    harness.backend.add(theirs, OTHER_DEPLOYMENT)
    with pytest.raises(NotFound):
        await service(harness).machines.terminate(OWNER, theirs)
    assert harness.backend.terminated == []


async def test_an_orphan_that_takes_a_while_to_end_was_told_to(harness: ControlHarness) -> None:
    harness.backend.add(STRANGER)
    harness.backend.ends = [NotYetGone("It is shutting down.")]
    ended = await service(harness).machines.terminate(OWNER, STRANGER)
    assert isinstance(ended, OrphanView)
    assert ended.machine == STRANGER


async def test_what_should_be_gone_is_ended_by_its_own_id(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    await service(harness).machines.terminate(OWNER, machine.id)
    harness.backend.show(machine.id, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    harness.backend.show(machine.id, Seen.UP)
    (left,) = (await service(harness).machines.list_orphans(OWNER)).items
    assert left.why == "it should be gone"
    await service(harness).machines.terminate(OWNER, machine.id)
    assert [r.machine for r in harness.backend.terminated] == [machine.id]


async def test_a_double_is_known_by_its_native_id_alone(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    twin = replace(harness.backend.made[machine.id].ref, native_id="i-twin")
    harness.backend.made["twin"] = Made(twin, DEPLOYMENT)
    (double,) = (await service(harness).machines.list_orphans(OWNER)).items
    assert (double.native_id, double.machine) == ("i-twin", None)
    await service(harness).machines.terminate(OWNER, "i-twin")
    assert [r.native_id for r in harness.backend.terminated] == ["i-twin"]
    assert (await harness.machine()).state is MachineState.UP
