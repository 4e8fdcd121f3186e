from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import text, update
from tests.control.harness import ControlHarness

from crucible.control.db import schema as t
from crucible.control.reconcile.duties import HOLD_SECONDS, Duties
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


async def check(harness: ControlHarness, computer: HostId | None = HERE, key: str = "dpl-1") -> None:
    await harness.sql(lambda conn: DeploymentCheck(key, NEARBY, computer)(conn, harness.clock.now()))


async def test_the_same_key_and_computer_are_admitted_again(harness: ControlHarness) -> None:
    await check(harness)
    await check(harness)
    values = {row["key"]: row["value"] for row in await harness.rows(t.meta)}
    assert values["deployment"] == "dpl-1"
    assert json.loads(values["computer"])["folder"] == HERE.folder


async def test_another_key_is_refused_and_changes_nothing(harness: ControlHarness) -> None:
    await check(harness)
    before = await harness.rows(t.meta)
    with pytest.raises(WrongDeployment) as refused:
        await check(harness, key="dpl-2")
    assert "key_file" in refused.value.fix
    assert await harness.rows(t.meta) == before


async def test_another_computer_is_refused_while_one_is_starting(harness: ControlHarness) -> None:
    await check(harness)
    with pytest.raises(OtherComputer) as refused:
        await check(harness, THERE)
    assert HERE.folder in refused.value.fix


async def test_another_computer_is_refused_while_a_server_serves_the_place(harness: ControlHarness) -> None:
    await check(harness)
    harness.clock.move(STARTING_SECONDS)
    await Duties("w9", ["local", "ssh"]).renew(harness.ports.db, harness.clock)
    with pytest.raises(OtherComputer):
        await check(harness, THERE)
    harness.clock.move(HOLD_SECONDS)
    await check(harness, THERE)


async def test_another_computer_is_refused_while_a_machine_lives(harness: ControlHarness) -> None:
    await check(harness)
    await harness.submit()
    harness.clock.move(STARTING_SECONDS)
    with pytest.raises(OtherComputer):
        await check(harness, THERE)
    await harness.sql(lambda conn: conn.execute(update(t.machines).values(state=MachineState.GONE.value)).rowcount)
    await check(harness, THERE)


async def test_whoever_has_no_place_on_its_computer_may_be_anywhere(harness: ControlHarness) -> None:
    await check(harness)
    await check(harness, None)
    with pytest.raises(WrongDeployment):
        await check(harness, None, key="dpl-2")


async def test_a_computer_that_has_another_name_now_is_the_same(harness: ControlHarness) -> None:
    await check(harness)
    await check(harness, replace(HERE, host="desk-2"))


async def test_a_computer_that_is_gone_for_good_can_be_given_up(harness: ControlHarness) -> None:
    await check(harness)
    await harness.submit()
    with pytest.raises(OtherComputer, match="in use") as refused:
        await check(harness, THERE)
    assert RELEASE_SQL in refused.value.fix
    await harness.sql(lambda conn: conn.execute(text(RELEASE_SQL)).rowcount)
    await check(harness, THERE)
