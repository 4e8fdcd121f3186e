"""The server is started again after the computer's clock was set back."""

from __future__ import annotations

from structlog.testing import capture_logs
from tests.control.harness import ControlHarness, add_row
from tests.control.reconcile.test_effects import intended

from crucible.control.db import schema as t
from crucible.control.runtime.background import CLOCK_MARGIN, clear_future_deadlines
from crucible.core.errors import Unreachable

HOUR = 3600.0


async def restart(harness: ControlHarness, ahead: float) -> bool:
    """A start by a clock that the last run was so many seconds ahead of."""
    harness.clock.time -= ahead
    with capture_logs():
        return await harness.sql(lambda conn: clear_future_deadlines(conn, harness.clock.now()))


async def test_what_was_to_be_tried_again_is_tried_at_once(harness: ControlHarness) -> None:
    harness.backend.down = Unreachable("No answer.")
    await intended(harness)
    await harness.performer.perform_due()
    harness.backend.down = None
    assert await restart(harness, 2 * HOUR)
    assert await harness.performer.perform_due() == 1
    assert len(harness.backend.made) == 1


async def test_jobs_are_looked_at_at_once(harness: ControlHarness) -> None:
    await harness.running()
    assert await restart(harness, 2 * HOUR)
    assert all(job["due_at"] in (None, harness.clock.now()) for job in await harness.rows(t.jobs))
    assert all(job["not_before"] <= harness.clock.now() for job in await harness.rows(t.jobs))


async def test_hooks_that_wait_are_called_at_once(harness: ControlHarness) -> None:
    hook = {"id": "hook-1", "project": "default", "url": "https://x", "events": "[]", "format": "json", "made_by": "o"}
    place = {"created_at": 0.0, "enabled": True, "disabled": "", "cursor": 0, "failures": 3}
    await harness.running()
    await harness.sql(add_row(t.hooks, **hook, **place, not_before=harness.clock.now() + HOUR))
    assert await restart(harness, 2 * HOUR)
    assert [row["not_before"] for row in await harness.rows(t.hooks)] == [harness.clock.now()]


async def test_jobs_are_planned_at_once(harness: ControlHarness) -> None:
    await harness.submit()
    assert await restart(harness, 2 * HOUR)
    assert [row["due_at"] for row in await harness.rows(t.plans)] == [harness.clock.now()]


async def test_a_clock_that_was_not_set_back_changes_nothing(harness: ControlHarness) -> None:
    await harness.running()
    before = await harness.rows(t.jobs), await harness.rows(t.effects)
    assert not await restart(harness, CLOCK_MARGIN - 1)
    assert not await restart(harness, -2 * HOUR)
    assert (await harness.rows(t.jobs), await harness.rows(t.effects)) == before


async def test_an_empty_database_has_no_clock(harness: ControlHarness) -> None:
    assert not await restart(harness, 0.0)
