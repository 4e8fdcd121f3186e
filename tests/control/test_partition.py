"""Partitions in virtual time: who cannot be reached is neither killed nor doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.world import FakeRunner, Rig, give_back, make_rig

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
async def rig(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path, cloud)
    yield rig
    await give_back(rig.ports.db)


async def partition(rig: Rig, seconds: float) -> None:
    """Time passes; our loops go on, the place answers, agents do not."""
    end = rig.clock.now() + seconds
    await rig.reconciler.round()
    while rig.clock.now() < end:
        rig.clock.time = min(rig.clock.now() + GAP_SECONDS - 1, end)
        await rig.reconciler.round()
    await rig.poller.poll()
    await rig.performer.perform_due()


@pytest.mark.parametrize("backend", ["local", "cloud"])
@pytest.mark.parametrize("seconds", [5.0, 60.0, 600.0, 2 * HOUR])
async def test_a_healthy_job_is_neither_killed_nor_restarted(
    rig: Rig, cloud: FakeCloud, backend: str, seconds: float
) -> None:
    job, runner = await rig.running(backend=backend)
    await partition(rig, seconds)
    world = await rig.world(job)
    assert [a.id for a in world.attempts] == [runner.attempt]
    assert (Condition.UNREACHABLE in world.job.conditions) == (seconds > 45)
    assert cloud.terminated == rig.backend.terminated == []
    await runner.end()
    assert (await rig.world(job)).job.state is JobState.COMPLETED


async def test_on_a_billed_place_the_fence_holds_after_its_time(rig: Rig, cloud: FakeCloud) -> None:
    job, _ = await rig.running(backend="cloud", fallback=("local",))
    await partition(rig, FENCE - 60)
    assert len((await rig.world(job)).attempts) == 1
    await partition(rig, 180)
    attempts = (await rig.world(job)).attempts
    assert [(a.backend, a.reason) for a in attempts] == [("cloud", Reason.FENCED), ("local", None)]
    assert len(cloud.terminated) > 0


async def test_what_a_fenced_runner_says_later_changes_nothing(rig: Rig) -> None:
    job, runner = await rig.running(backend="cloud", fallback=("local",))
    await partition(rig, FENCE + 180)
    with pytest.raises(AttemptGone):
        await runner.send([runner.message(MessageKind.EXITED, code=0, cause="exit"), runner.message(MessageKind.ENDED)])
    world = await rig.world(job)
    assert (world.job.state.terminal, len(world.attempts)) == (False, 2)


async def test_a_laptop_that_slept_kills_nothing(rig: Rig, cloud: FakeCloud) -> None:
    here, _ = await rig.running()
    there, far = await rig.running(backend="cloud")
    rig.clock.move(8 * HOUR)
    await rig.reconciler.round()
    assert (await rig.world(here)).job.conditions == frozenset()
    assert cloud.terminated == rig.backend.terminated == []
    await far.send([far.message(MessageKind.EXITED, cause="fenced"), far.message(MessageKind.ENDED)])
    assert (await rig.world(there)).attempts[0].reason is Reason.FENCED, "its own word comes first"


async def test_after_a_sleep_or_a_clock_that_was_set_silence_is_counted_anew(rig: Rig) -> None:
    """The agent may have been in contact a moment before the clock was set, and count its lease from then."""
    job, _ = await rig.running(backend="cloud")
    rig.clock.move(8 * HOUR)
    await partition(rig, FENCE - 60)
    assert len((await rig.world(job)).attempts) == 1
    await partition(rig, 180)
    assert (await rig.world(job)).attempts[0].reason is Reason.FENCED


async def test_a_runner_that_is_heard_again_is_reachable_again(rig: Rig) -> None:
    job, runner = await rig.running(backend="cloud")
    await partition(rig, 2 * HOUR)
    await FakeRunner(rig.agents, runner.attempt).send([])
    await rig.agents.attempt_desired(runner.attempt, 0, False, 0, 0)
    await partition(rig, 30)
    await runner.say(MessageKind.PROGRESS, step=1)
    assert (await rig.world(job)).job.conditions == frozenset()
