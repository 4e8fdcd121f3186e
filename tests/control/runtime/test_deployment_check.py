from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import text, update
from tests.control.world import Rig

from crucible.control.db import schema as t
from crucible.control.reconcile.roles import HOLD_SECONDS, Duties
from crucible.control.runtime.deployment_check import (
    RELEASE_SQL,
    STARTING_SECONDS,
    DeploymentCheck,
    OtherComputer,
    WrongDeployment,
)
from crucible.control.runtime.host_id import HostId
from crucible.core.lifecycle import MachineState

HERE, THERE = HostId("m1", "desk", "/var/crucible"), HostId("m2", "rack", "/srv/crucible")
NEARBY = frozenset({"local"})


async def check(rig: Rig, computer: HostId | None = HERE, key: str = "dpl-1") -> None:
    await rig.sql(lambda conn: DeploymentCheck(key, NEARBY, computer)(conn, rig.clock.now()))


async def test_the_same_key_and_computer_are_admitted_again(rig: Rig) -> None:
    await check(rig)
    await check(rig)
    values = {row["key"]: row["value"] for row in await rig.rows(t.meta)}
    assert values["deployment"] == "dpl-1"
    assert json.loads(values["computer"])["folder"] == HERE.folder


async def test_another_key_is_refused_and_changes_nothing(rig: Rig) -> None:
    await check(rig)
    before = await rig.rows(t.meta)
    with pytest.raises(WrongDeployment) as refused:
        await check(rig, key="dpl-2")
    assert "key_file" in refused.value.fix
    assert await rig.rows(t.meta) == before


async def test_another_computer_is_refused_while_one_is_starting(rig: Rig) -> None:
    await check(rig)
    with pytest.raises(OtherComputer) as refused:
        await check(rig, THERE)
    assert HERE.folder in refused.value.fix


async def test_another_computer_is_refused_while_a_server_serves_the_place(rig: Rig) -> None:
    await check(rig)
    rig.clock.move(STARTING_SECONDS)
    await Duties("w9", ["local", "ssh"]).renew(rig.ports.db, rig.clock)
    with pytest.raises(OtherComputer):
        await check(rig, THERE)
    rig.clock.move(HOLD_SECONDS)
    await check(rig, THERE)


async def test_another_computer_is_refused_while_a_machine_lives(rig: Rig) -> None:
    await check(rig)
    await rig.submit()
    rig.clock.move(STARTING_SECONDS)
    with pytest.raises(OtherComputer):
        await check(rig, THERE)
    await rig.sql(lambda conn: conn.execute(update(t.machines).values(state=MachineState.GONE.value)).rowcount)
    await check(rig, THERE)


async def test_whoever_has_no_place_on_its_computer_may_be_anywhere(rig: Rig) -> None:
    await check(rig)
    await check(rig, None)
    with pytest.raises(WrongDeployment):
        await check(rig, None, key="dpl-2")


async def test_a_computer_that_has_another_name_now_is_the_same(rig: Rig) -> None:
    await check(rig)
    await check(rig, replace(HERE, host="desk-2"))


async def test_a_computer_that_is_gone_for_good_can_be_given_up(rig: Rig) -> None:
    await check(rig)
    await rig.submit()
    with pytest.raises(OtherComputer, match="in use") as refused:
        await check(rig, THERE)
    assert RELEASE_SQL in refused.value.fix
    await rig.sql(lambda conn: conn.execute(text(RELEASE_SQL)).rowcount)
    await check(rig, THERE)
