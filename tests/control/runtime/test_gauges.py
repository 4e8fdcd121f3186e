from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection, text
from tests.control.harness import ControlHarness, service

from crucible.backends.base import LaunchRefused
from crucible.control.control_plane import ControlPlane
from crucible.control.runtime import gauges
from crucible.control.runtime.durations import TimedDb
from crucible.control.runtime.gauges import StoredCounts
from crucible.core.people.identity import OWNER


async def stored(harness: ControlHarness) -> StoredCounts:
    return await harness.read(lambda conn: gauges.count_stored(conn, harness.clock.now()))


async def test_an_empty_service_has_zeros(harness: ControlHarness) -> None:
    nothing = StoredCounts(jobs={"queued": 0, "running": 0}, queue=0, machines={}, agents=0, hooks_waiting=0)
    assert await stored(harness) == nothing


async def test_jobs_machines_and_agents_are_counted(harness: ControlHarness) -> None:
    _job, runner = await harness.running(cpus=4.0)
    await harness.submit(cpus=4.0)
    await harness.submit(cpus=4.0)
    found = await stored(harness)
    assert (found.jobs, found.queue) == ({"queued": 2, "running": 1}, 2)
    assert found.machines == {("local", "up"): 1}
    await harness.reconciler.round()
    assert (await stored(harness)).agents == 1
    harness.clock.move(gauges.AGENT_SECONDS + 1)
    assert (await stored(harness)).agents == 0
    await runner.end()
    names = ("submitted", "placed", "retrying", "completed", "failed", "cancelled")
    assert [harness.writer.event_counts[name] for name in names] == [3, 2, 0, 1, 0, 0]
    assert harness.performer.launches == {("local", "made"): 1}


async def test_a_launch_that_was_refused_is_told_apart(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: object) -> None:
        raise LaunchRefused("No quota.")

    monkeypatch.setattr(harness.backend, "launch", refuse)
    await harness.submit()
    await harness.performer.perform_due()
    assert harness.performer.launches == {("local", "refused"): 1}


async def test_write_times_are_there_where_they_are_measured(harness: ControlHarness) -> None:
    assert (await service(harness).maintenance.gauges(OWNER)).writes is None
    timed = TimedDb(harness.ports.db, harness.clock)
    control = ControlPlane(replace(harness.ports, db=timed), harness.backends, harness.deployment)
    await timed.write(lambda conn: None)
    found = (await control.maintenance.gauges(OWNER)).writes
    assert found is not None
    assert found.counts[-1] == 1
    assert len(found.counts) == len(found.bounds) + 1


async def test_no_job_that_ended_is_looked_at(harness: ControlHarness) -> None:
    """What is asked of jobs and machines is asked of an index, by state."""

    def plan(conn: Connection) -> list[str]:
        if conn.dialect.name != "sqlite":
            pytest.skip("a small table is always scanned there")
        found = []
        for statement in (gauges._JOBS, gauges._MACHINES, gauges._AGENTS):
            clause = statement._clause.params(since=1.0).compile(conn, compile_kwargs={"literal_binds": True})  # type: ignore[union-attr]
            found += [str(row[-1]) for row in conn.execute(text(f"EXPLAIN QUERY PLAN {clause}"))]
        return found

    steps = [step for step in await harness.read(plan) if "SCAN" in step or "SEARCH" in step]
    assert len(steps) == 3
    assert all("USING" in step and "INDEX ix_" in step and "state=" in step for step in steps), steps
