from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.fakes import DEPLOYMENT, OTHER_DEPLOYMENT, Made
from tests.control.world import Rig, new_id, service

from crucible.backends.base import NotYetGone, Seen
from crucible.core.errors import NotFound
from crucible.core.ids import Prefix, short
from crucible.core.lifecycle import MachineState
from crucible.core.people.identity import OWNER
from crucible.core.views.compute import OrphanView

STRANGER = new_id(Prefix.MACHINE, 99)


async def test_machines_that_are_gone_are_listed_when_asked_for(rig: Rig) -> None:
    await rig.running()
    control = service(rig)
    assert len((await control.machines.list_machines(OWNER)).items) == 1
    machine = (await rig.machine()).id
    await control.machines.terminate(OWNER, machine)
    rig.backend.show(machine, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    assert (await control.machines.list_machines(OWNER)).items == ()
    assert len((await control.machines.list_machines(OWNER, all=True)).items) == 1


async def test_a_person_may_end_one_of_ours_by_a_short_id(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    view = await service(rig).machines.terminate(OWNER, short(machine.id))
    assert view.state == "releasing"
    assert (await rig.machine()).state is MachineState.RELEASING


async def test_orphans_are_listed_and_left_alone(rig: Rig) -> None:
    rig.backend.add(STRANGER)
    rig.backend.add(new_id(Prefix.MACHINE, 98), OTHER_DEPLOYMENT)
    (orphan,) = (await service(rig).machines.list_orphans(OWNER)).items
    assert (orphan.machine, orphan.native_id) == (STRANGER, f"i-{STRANGER}")
    assert rig.backend.terminated == []


@pytest.mark.parametrize("ref", [STRANGER, short(STRANGER), f"i-{STRANGER}"])
async def test_an_orphan_is_ended_on_command(rig: Rig, ref: str) -> None:
    rig.backend.add(STRANGER)
    await service(rig).machines.terminate(OWNER, ref)
    assert [r.machine for r in rig.backend.terminated] == [STRANGER]
    assert (await service(rig).machines.list_orphans(OWNER)).items == ()


async def test_another_deployments_machine_cannot_be_named(rig: Rig) -> None:
    theirs = new_id(Prefix.MACHINE, 98)
    rig.backend.add(theirs, OTHER_DEPLOYMENT)
    with pytest.raises(NotFound):
        await service(rig).machines.terminate(OWNER, theirs)
    assert rig.backend.terminated == []


async def test_an_orphan_that_takes_a_while_to_end_was_told_to(rig: Rig) -> None:
    rig.backend.add(STRANGER)
    rig.backend.ends = [NotYetGone("It is shutting down.")]
    ended = await service(rig).machines.terminate(OWNER, STRANGER)
    assert isinstance(ended, OrphanView)
    assert ended.machine == STRANGER


async def test_what_should_be_gone_is_ended_by_its_own_id(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    await service(rig).machines.terminate(OWNER, machine.id)
    rig.backend.show(machine.id, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    rig.backend.show(machine.id, Seen.UP)
    (left,) = (await service(rig).machines.list_orphans(OWNER)).items
    assert left.why == "it should be gone"
    await service(rig).machines.terminate(OWNER, machine.id)
    assert [r.machine for r in rig.backend.terminated] == [machine.id]


async def test_a_double_is_known_by_its_native_id_alone(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    twin = replace(rig.backend.made[machine.id].ref, native_id="i-twin")
    rig.backend.made["twin"] = Made(twin, DEPLOYMENT)
    (double,) = (await service(rig).machines.list_orphans(OWNER)).items
    assert (double.native_id, double.machine) == ("i-twin", None)
    await service(rig).machines.terminate(OWNER, "i-twin")
    assert [r.native_id for r in rig.backend.terminated] == ["i-twin"]
    assert (await rig.machine()).state is MachineState.UP
