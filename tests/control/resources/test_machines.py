from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.fakes import DEPLOYMENT, OTHER_DEPLOYMENT, Made
from tests.control.harness import ControlHarness, new_id, service

from crucible.backends.base import NotYetGone, Seen
from crucible.core.errors import NotFound
from crucible.core.ids import Prefix, short
from crucible.core.lifecycle import MachineState
from crucible.core.people.identity import OWNER
from crucible.core.views.compute import OrphanView

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
