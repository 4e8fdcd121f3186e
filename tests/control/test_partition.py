"""Partitions in virtual time: who cannot be reached is neither killed nor doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.harness import ControlHarness, FakeRunner, give_back, make_harness

from crucible.control.agents.slots import AttemptGone
from crucible.control.machines.machine_factory import LeaseTerms
from crucible.control.reconcile.reconciler import GAP_SECONDS
from crucible.core.job.states import Condition
from crucible.core.lifecycle import JobState, Reason
from crucible.core.lifecycle.silence import REPLACE_MARGIN
from crucible.wire.documents.messages import MessageKind

HOUR = 3600.0
FENCE = LeaseTerms().lease_seconds + REPLACE_MARGIN


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
async def harness(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, cloud)
    yield harness
    await give_back(harness.ports.db)


async def partition(harness: ControlHarness, seconds: float) -> None:
    """Time passes; our loops go on, the place answers, agents do not."""
    end = harness.clock.now() + seconds
    await harness.reconciler.round()
    while harness.clock.now() < end:
        harness.clock.time = min(harness.clock.now() + GAP_SECONDS - 1, end)
        await harness.reconciler.round()
    await harness.poller.poll()
    await harness.performer.perform_due()


@pytest.mark.parametrize("backend", ["local", "cloud"])
@pytest.mark.parametrize("seconds", [5.0, 60.0, 600.0, 2 * HOUR])
async def test_a_healthy_job_is_neither_killed_nor_restarted(
    harness: ControlHarness, cloud: FakeCloud, backend: str, seconds: float
) -> None:
    job, runner = await harness.running(backend=backend)
    await partition(harness, seconds)
    world = await harness.world(job)
    assert [a.id for a in world.attempts] == [runner.attempt]
    assert (Condition.UNREACHABLE in world.job.conditions) == (seconds > 45)
    assert cloud.terminated == harness.backend.terminated == []
    await runner.end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


async def test_on_a_billed_place_the_fence_holds_after_its_time(harness: ControlHarness, cloud: FakeCloud) -> None:
    job, _ = await harness.running(backend="cloud", fallback=("local",))
    await partition(harness, FENCE - 60)
    assert len((await harness.world(job)).attempts) == 1
    await partition(harness, 180)
    attempts = (await harness.world(job)).attempts
    assert [(a.backend, a.reason) for a in attempts] == [("cloud", Reason.FENCED), ("local", None)]
    assert len(cloud.terminated) > 0


async def test_what_a_fenced_runner_says_later_changes_nothing(harness: ControlHarness) -> None:
    job, runner = await harness.running(backend="cloud", fallback=("local",))
    await partition(harness, FENCE + 180)
    with pytest.raises(AttemptGone):
        await runner.send([runner.message(MessageKind.EXITED, code=0, cause="exit"), runner.message(MessageKind.ENDED)])
    world = await harness.world(job)
    assert (world.job.state.terminal, len(world.attempts)) == (False, 2)


async def test_a_laptop_that_slept_kills_nothing(harness: ControlHarness, cloud: FakeCloud) -> None:
    here, _ = await harness.running()
    there, far = await harness.running(backend="cloud")
    harness.clock.move(8 * HOUR)
    await harness.reconciler.round()
    assert (await harness.world(here)).job.conditions == frozenset()
    assert cloud.terminated == harness.backend.terminated == []
    await far.send([far.message(MessageKind.EXITED, cause="fenced"), far.message(MessageKind.ENDED)])
    assert (await harness.world(there)).attempts[0].reason is Reason.FENCED, "its own word comes first"


async def test_after_a_sleep_or_a_clock_that_was_set_silence_is_counted_anew(harness: ControlHarness) -> None:
    """The agent may have been in contact a moment before the clock was set, and count its lease from then."""
    job, _ = await harness.running(backend="cloud")
    harness.clock.move(8 * HOUR)
    await partition(harness, FENCE - 60)
    assert len((await harness.world(job)).attempts) == 1
    await partition(harness, 180)
    assert (await harness.world(job)).attempts[0].reason is Reason.FENCED


async def test_a_runner_that_is_heard_again_is_reachable_again(harness: ControlHarness) -> None:
    job, runner = await harness.running(backend="cloud")
    await partition(harness, 2 * HOUR)
    await FakeRunner(harness.agents, runner.attempt).send([])
    await harness.agents.attempt_desired(runner.attempt, 0, False, 0, 0)
    await partition(harness, 30)
    await runner.say(MessageKind.PROGRESS, step=1)
    assert (await harness.world(job)).job.conditions == frozenset()
