"""The server is started again after the computer's clock was set back."""

from __future__ import annotations

from structlog.testing import capture_logs
from tests.control.reconcile.test_effects import intended
from tests.control.world import Rig, add_row

from crucible.control.db import schema as t
from crucible.control.runtime.background import CLOCK_MARGIN, clear_future_deadlines
from crucible.core.errors import Unreachable

HOUR = 3600.0


async def restart(rig: Rig, ahead: float) -> bool:
    """A start by a clock that the last run was so many seconds ahead of."""
    rig.clock.time -= ahead
    with capture_logs():
        return await rig.sql(lambda conn: clear_future_deadlines(conn, rig.clock.now()))


async def test_what_was_to_be_tried_again_is_tried_at_once(rig: Rig) -> None:
    rig.backend.down = Unreachable("No answer.")
    await intended(rig)
    await rig.performer.perform_due()
    rig.backend.down = None
    assert await restart(rig, 2 * HOUR)
    assert await rig.performer.perform_due() == 1
    assert len(rig.backend.made) == 1


async def test_jobs_are_looked_at_at_once(rig: Rig) -> None:
    await rig.running()
    assert await restart(rig, 2 * HOUR)
    assert all(job["due_at"] in (None, rig.clock.now()) for job in await rig.rows(t.jobs))
    assert all(job["not_before"] <= rig.clock.now() for job in await rig.rows(t.jobs))


async def test_hooks_that_wait_are_called_at_once(rig: Rig) -> None:
    hook = {"id": "hook-1", "project": "default", "url": "https://x", "events": "[]", "format": "json", "made_by": "o"}
    place = {"created_at": 0.0, "enabled": True, "disabled": "", "cursor": 0, "failures": 3}
    await rig.running()
    await rig.sql(add_row(t.hooks, **hook, **place, not_before=rig.clock.now() + HOUR))
    assert await restart(rig, 2 * HOUR)
    assert [row["not_before"] for row in await rig.rows(t.hooks)] == [rig.clock.now()]


async def test_jobs_are_planned_at_once(rig: Rig) -> None:
    await rig.submit()
    assert await restart(rig, 2 * HOUR)
    assert [row["due_at"] for row in await rig.rows(t.plans)] == [rig.clock.now()]


async def test_a_clock_that_was_not_set_back_changes_nothing(rig: Rig) -> None:
    await rig.running()
    before = await rig.rows(t.jobs), await rig.rows(t.effects)
    assert not await restart(rig, CLOCK_MARGIN - 1)
    assert not await restart(rig, -2 * HOUR)
    assert (await rig.rows(t.jobs), await rig.rows(t.effects)) == before


async def test_an_empty_database_has_no_clock(rig: Rig) -> None:
    assert not await restart(rig, 0.0)
