from __future__ import annotations

from tests.control.world import Rig

from crucible.control.db import schema as t
from crucible.control.machines.pools import release_idle_pools
from crucible.core.lifecycle import MachineState


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
