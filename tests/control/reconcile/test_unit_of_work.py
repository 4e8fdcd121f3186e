from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.harness import ControlHarness, job_spec

from crucible.control.db import schema as t
from crucible.control.reconcile import repository
from crucible.control.reconcile.repository import Stale
from crucible.control.reconcile.unit_of_work import MAX_ATTEMPTS, UnitOfWork, Writer
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.control.telemetry.feed import Feed, Hint
from crucible.core.lifecycle import Step, World
from crucible.core.lifecycle.facts import CancelRequested, RunnerContacted, Waits

T = TypeVar("T")


@dataclass
class RecordingDb:
    """A database and wake-ups that note in which order things happen."""

    harness: ControlHarness
    happened: list[str] = field(default_factory=list)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        result = await self.harness.ports.db.write(fn)
        self.happened.append("commit")
        return result

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self.harness.ports.db.read(fn)

    async def close(self) -> None:
        await self.harness.ports.db.close()

    def writer(self) -> Writer:
        return Writer(replace(self.harness.ports, db=self, wakeups=RecordingWakeups(self.happened)), Feed())


class RecordingWakeups(LocalWakeups):
    def __init__(self, happened: list[str]) -> None:
        super().__init__()
        self.happened = happened

    def wake(self, topic: str) -> None:
        self.happened.append(topic.partition(":")[0])


def load(unit: UnitOfWork, job: str) -> World:
    world = repository.load_world(unit.conn, job)
    assert world is not None
    return world


async def test_a_stale_decision_is_made_again_on_what_is_true_now(harness: ControlHarness) -> None:
    job = await harness.submit()
    outdated = [await harness.world(job)]
    await harness.writer.write(lambda unit: unit.advance(load(unit, job), CancelRequested()))
    seen: list[str] = []

    def decide(unit: UnitOfWork) -> None:
        world = outdated.pop() if outdated else load(unit, job)
        seen.append(world.job.desired.value)
        unit.save(world, _noted(world))

    await harness.writer.write(decide)
    assert seen == ["run", "cancel"]
    assert (await harness.world(job)).job.detail == "noted"


async def test_a_decision_that_stays_stale_gives_up(harness: ControlHarness) -> None:
    job = await harness.submit()
    old = await harness.world(job)
    await harness.writer.write(lambda unit: unit.advance(load(unit, job), CancelRequested()))
    tries: list[int] = []

    def decide(unit: UnitOfWork) -> None:
        tries.append(1)
        unit.save(old, _noted(old))

    with pytest.raises(Stale):
        await harness.writer.write(decide)
    assert len(tries) == MAX_ATTEMPTS


async def test_nobody_is_woken_before_the_commit(harness: ControlHarness) -> None:
    watched = RecordingDb(harness)
    await watched.writer().write(lambda unit: harness.submitter.store(unit, job_spec(), None))
    assert watched.happened == ["commit", "machine", "effects"]


async def test_effects_are_announced_only_when_there_are_some(harness: ControlHarness) -> None:
    await harness.submit()
    watched = RecordingDb(harness)
    await watched.writer().write(lambda unit: harness.submitter.store(unit, job_spec(), None))
    assert watched.happened == ["commit", "machine"], "the second job goes to the machine that is there"


async def test_a_function_that_raises_announces_and_stores_nothing(harness: ControlHarness) -> None:
    watched = RecordingDb(harness)

    def broken(unit: UnitOfWork) -> None:
        harness.submitter.store(unit, job_spec(), None)
        raise RuntimeError("after everything was written")

    with harness.feed.watch(None) as watch:
        with pytest.raises(RuntimeError):
            await watched.writer().write(broken)
        assert await watch.changed(0) == set()
    assert watched.happened == []
    assert await harness.rows(t.jobs) == await harness.rows(t.machines) == await harness.rows(t.events) == []


async def test_watchers_of_the_job_hear_of_its_events(harness: ControlHarness) -> None:
    job = await harness.submit()
    other = await harness.submit()
    with harness.feed.watch(job) as mine, harness.feed.watch(other) as others, harness.feed.watch(None) as everything:
        await harness.writer.write(lambda unit: unit.advance(load(unit, job), CancelRequested()))
        assert await mine.changed(0) == await everything.changed(0) == {Hint.EVENT}
        assert await others.changed(0) == set()


async def test_what_changes_nothing_wakes_nobody(harness: ControlHarness) -> None:
    job = await harness.submit()
    await harness.writer.write(lambda unit: unit.advance(load(unit, job), CancelRequested()))
    before = await harness.world(job)
    with harness.feed.watch(job) as mine, harness.feed.watch(None) as everything:
        await harness.writer.write(lambda unit: unit.advance(load(unit, job), Waits("for nothing")))
        assert await mine.changed(0) == await everything.changed(0) == set()
    assert await harness.world(job) == before


async def test_any_change_of_a_job_is_a_reason_to_look(harness: ControlHarness) -> None:
    job = await harness.submit()
    attempt = (await harness.attempt(job)).id
    with harness.feed.watch(job) as watch:
        await harness.writer.write(lambda unit: unit.advance(load(unit, job), RunnerContacted(attempt)))
        assert await watch.changed(0) == {Hint.EVENT}


async def test_facts_are_applied_in_order_at_one_instant(harness: ControlHarness) -> None:
    job = await harness.submit(cpus=4)
    waiting = await harness.submit(cpus=4)
    after = await harness.writer.write(
        lambda unit: unit.advance(load(unit, waiting), Waits("a"), Waits("b"), CancelRequested())
    )
    assert after == await harness.world(waiting)
    assert after.job.ended_at == harness.clock.now()
    assert (await harness.world(job)).live is not None


def _noted(world: World) -> Step:
    return Step(world.with_job(detail="noted"))
