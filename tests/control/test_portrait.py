"""Portraits: one job with all that is stored of it, at one moment."""

from __future__ import annotations

import pytest
from tests.control.world import Rig

from crucible.control import queries
from crucible.control.portrait import portrait
from crucible.control.views import View
from crucible.core.errors import NotFound
from crucible.core.ids import Prefix, make_id
from crucible.wire.messages import Kind


async def drawn(rig: Rig, job: str) -> View:
    return await rig.read(lambda conn: portrait(conn, job, rig.clock.now()))


async def test_it_holds_the_view_the_health_and_the_metrics_of_the_last_attempt(rig: Rig) -> None:
    job, runner = await rig.running()
    await runner.say(Kind.POINTS, series={"loss": [[1, 0.5, 2]]})
    found, now = await drawn(rig, job), rig.clock.now()
    view = await rig.read(lambda conn: queries.one_job(conn, job, now))
    assert {name: found[name] for name in view} == view
    assert found["health"] == await rig.read(lambda conn: queries.job_health(conn, job, now))
    assert found["metrics"] == {"loss": 0.5}


async def test_a_job_that_waits_has_nothing_yet(rig: Rig) -> None:
    found = await drawn(rig, await rig.submit())
    names = ("metrics", "result", "notes", "predicted_seconds", "plan")
    assert [found[name] for name in names] == [{}, None, [], None, None]


async def test_what_is_not_there_is_not_drawn(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await drawn(rig, make_id(Prefix.JOB, 1, 1))
