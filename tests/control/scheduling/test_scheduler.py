from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import update
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend, InlineCalls
from tests.control.harness import ControlHarness, give_back, join, make_harness, other_worker, service, with_calls

from crucible.backends.base import Capabilities, Reach
from crucible.control.db import schema as t
from crucible.control.reconcile import repository
from crucible.control.reconcile.duties import HOLD_SECONDS
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.scheduling.queue import END_OF_TIME
from crucible.control.scheduling.scheduler import LANE
from crucible.control.scheduling.state_reader import FAILURE_SECONDS, FIRST_PAUSE, waiting_job
from crucible.control.upkeep import restore_hold
from crucible.core.compute.offers import Need, Offer, ProviderQueue
from crucible.core.compute.resources import GiB
from crucible.core.errors import Unreachable
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import FIRST_WAIT
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.core.scheduling.state import Failures

T = TypeVar("T")


async def states(harness: ControlHarness, *jobs: str) -> list[str]:
    return [(await harness.world(job)).job.state.value for job in jobs]


async def just_started(harness: ControlHarness, scratch: Path) -> ControlHarness:
    """Return a server whose backend does not answer yet, so that all submissions wait."""
    harness.backend.down = Unreachable("Not yet.")
    cold = join(harness.ports, harness.clock, harness.calls, harness.backends, scratch)
    await cold.duties.renew(harness.ports.db, harness.clock)
    return cold


async def gpus(harness: ControlHarness, job: str) -> tuple[int, ...]:
    return (await harness.attempt(job)).slots[0].allocation.gpus


async def test_the_first_machine_is_intended_once(harness: ControlHarness) -> None:
    for _ in range(3):
        await harness.submit()
    assert await harness.count(t.machines) == 1
    assert [e["kind"] for e in await harness.rows(t.effects)] == ["launch"]
    assert (await harness.machine()).owner == "pool:local"


async def test_several_jobs_of_one_round_share_the_new_machine(harness: ControlHarness, tmp_path: Path) -> None:
    harness = await just_started(harness, tmp_path)
    jobs = [await harness.submit() for _ in range(3)]
    assert await harness.count(t.machines) == 0
    harness.backend.down = None
    await harness.offers.refresh()
    await harness.place()
    assert await harness.count(t.machines) == 1
    assert await harness.count(t.effects) == 1
    machine = await harness.machine()
    assert {(await harness.attempt(job)).slots[0].machine for job in jobs} == {machine.id}
    (row,) = await harness.rows(t.machines)
    assert row["desired_version"] == len(jobs), "each of them changed the machine's document"


async def test_first_in_first_out(harness: ControlHarness) -> None:
    first = await harness.submit(cpus=3)
    large = await harness.submit(cpus=4)
    small = await harness.submit(cpus=1)
    assert await states(harness, first, large, small) == ["provisioning", "queued", "queued"]
    world = await harness.world(large)
    assert "4 CPUs: 1 free" in world.job.waiting
    await harness.host_up()
    await (await harness.runner(first)).end()
    assert await states(harness, first, large, small) == ["completed", "starting", "queued"]
    await (await harness.runner(large)).end()
    assert await states(harness, large, small) == ["completed", "starting"]


async def test_the_end_of_one_job_places_as_many_as_fit(harness: ControlHarness) -> None:
    large = await harness.submit(cpus=4)
    small = [await harness.submit(cpus=1) for _ in range(5)]
    await harness.host_up()
    await (await harness.runner(large)).end()
    assert await states(harness, *small) == ["starting"] * 4 + ["queued"]


async def test_cpus_are_counted_in_parts(harness: ControlHarness) -> None:
    jobs = [await harness.submit(cpus=0.4, memory=GiB) for _ in range(11)]
    assert await states(harness, *jobs) == ["provisioning"] * 10 + ["queued"]


async def test_memory_is_counted(harness: ControlHarness) -> None:
    jobs = [await harness.submit(cpus=0.1, memory=6 * GiB) for _ in range(3)]
    assert await states(harness, *jobs) == ["provisioning", "provisioning", "queued"]
    assert "6 GiB of memory" in (await harness.world(jobs[2])).job.waiting


async def test_gpus_are_given_by_index_and_come_back(harness: ControlHarness) -> None:
    one, two, three = [await harness.submit(gpus=1) for _ in range(3)]
    assert [await gpus(harness, job) for job in (one, two)] == [(0,), (1,)]
    assert await states(harness, three) == ["queued"]
    assert "1 GPU: 0 free" in (await harness.world(three)).job.waiting
    await harness.host_up()
    await (await harness.runner(one)).end()
    assert await gpus(harness, three) == (0,)


async def test_a_job_without_a_size_takes_the_whole_computer(harness: ControlHarness) -> None:
    whole = await harness.submit(resources={})
    beside = await harness.submit(cpus=0.1)
    slot = (await harness.attempt(whole)).slots[0]
    assert (slot.allocation.cpus, slot.allocation.memory_bytes, slot.allocation.gpus) == (4, 16 * GiB, (0, 1))
    assert await states(harness, beside) == ["queued"]


async def test_the_placement_says_why_there(harness: ControlHarness) -> None:
    chosen = await harness.submit(backend="local")
    found = await harness.submit()
    assert (await harness.world(chosen)).job.placement.endswith("because you asked for it")
    assert "4 CPUs, 16 GiB, 2 x T4, free) because it is free" in (await harness.world(found)).job.placement


async def test_a_job_that_its_node_can_no_longer_hold_waits_and_holds_back_nobody(
    harness: ControlHarness, tmp_path: Path
) -> None:
    harness = await just_started(harness, tmp_path)
    large = await harness.submit(cpus=4)
    small = await harness.submit(cpus=1)
    harness.backend.capacity = harness.backend.capacity.model_copy(update={"cpus": 2})
    harness.backend.down = None
    await harness.offers.refresh()
    await harness.place()
    assert await states(harness, large, small) == ["queued", "provisioning"]
    assert (await harness.world(large)).job.waiting == "asks for 4 CPUs; this computer has 2"


async def test_nothing_is_placed_twice(harness: ControlHarness) -> None:
    job = await harness.submit()
    for _ in range(3):
        await harness.place()
    assert len((await harness.world(job)).attempts) == 1
    assert await harness.count(t.effects) == 1


async def test_a_reason_to_wait_is_written_once(harness: ControlHarness) -> None:
    await harness.submit(cpus=4)
    waiting = await harness.submit(cpus=4)
    version = (await harness.world(waiting)).job.version
    await harness.place()
    assert (await harness.world(waiting)).job.version == version


async def test_a_released_machine_holds_its_slots_until_it_is_gone(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    machine = await harness.machine()
    await harness.change_machine(machine.id, f.Unwanted("nothing runs here"))
    job = await harness.submit()
    assert await states(harness, job) == ["queued"]
    await harness.performer.perform_due()
    assert (await harness.machine(machine.id)).state is MachineState.GONE
    await harness.place()
    assert await states(harness, job) == ["provisioning"]
    assert await harness.count(t.machines) == 2


async def test_an_attempt_on_a_machine_that_is_up_is_not_launching(harness: ControlHarness) -> None:
    await harness.running()
    job = await harness.submit()
    assert (await harness.attempt(job)).state is AttemptState.PLACED
    assert await states(harness, job) == ["starting"]


async def test_a_server_without_the_duty_decides_nothing_for_the_queue(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    first, waiting = await other.submit(cpus=4), await other.submit(cpus=4)
    await other.host_up()
    await (await other.runner(first)).end()
    await other.place()
    assert await states(harness, first, waiting) == ["completed", "queued"]
    await harness.place()
    assert await states(harness, waiting) == ["starting"]


async def test_a_holder_that_was_paused_too_long_decides_nothing(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    first, waiting = await harness.submit(cpus=4), await harness.submit(cpus=4)
    await harness.host_up()
    harness.clock.move(HOLD_SECONDS + 1)
    await other.duties.renew(harness.ports.db, harness.clock)
    await (await harness.runner(first)).end()
    await harness.place()
    assert await states(harness, waiting) == ["queued"], "it still believes to have the duty"
    await other.place()
    assert await states(harness, waiting) == ["starting"]


async def test_a_retry_waits_for_its_time(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 30})
    await runner.end(code=1)
    world = await harness.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.not_before == harness.clock.now() + 30
    harness.clock.move(29)
    await harness.place()
    assert (await harness.world(job)).live is None
    harness.clock.move(1)
    await harness.place()
    assert [a.number for a in (await harness.world(job)).attempts] == [1, 2]


async def test_a_full_node_stops_only_its_own_queue(two_backends: ControlHarness) -> None:
    harness = two_backends
    await harness.submit(cpus=4)
    here = await harness.submit(cpus=4)
    there = await harness.submit(cpus=4, backend="ssh")
    assert await states(harness, here, there) == ["queued", "provisioning"]
    assert {m["backend"] for m in await harness.rows(t.machines)} == {"local", "ssh"}


# Submissions


async def test_a_submission_that_fits_now_commits_with_its_launch(harness: ControlHarness) -> None:
    elsewhere = await other_worker(harness, "w2")
    job = await elsewhere.submit()
    assert await states(harness, job) == ["provisioning"], "whichever server takes it"
    assert await harness.count(t.effects) == 1


async def test_a_submission_that_does_not_fit_says_why_at_once(harness: ControlHarness) -> None:
    elsewhere = await other_worker(harness, "w2")
    await elsewhere.submit(cpus=3)
    waiting = await elsewhere.submit(cpus=2)
    assert (await harness.world(waiting)).job.waiting.startswith("waits for 2 CPUs: 1 free, held by job-")


async def test_a_submission_behind_somebody_is_not_started_at_once(harness: ControlHarness) -> None:
    elsewhere = await other_worker(harness, "w2")
    jobs = [await elsewhere.submit(cpus=cpus) for cpus in (3, 4, 1)]
    assert await states(harness, *jobs) == ["provisioning", "queued", "queued"]


async def test_a_submission_on_demand_waits_behind_nobody(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, cloud := FakeCloud())
    cloud.sold_out = set(cloud.rates)
    await harness.offers.refresh()
    elsewhere = await other_worker(harness, "w2")
    waiting = await elsewhere.submit(backend="cloud")
    cloud.sold_out = set()
    await elsewhere.offers.refresh()
    job = await elsewhere.submit(backend="cloud")
    assert await states(harness, waiting, job) == ["queued", "provisioning"], "the round starts the other"
    await give_back(harness.ports.db)


async def test_a_submission_with_several_backends_starts_on_the_first_with_room(two_backends: ControlHarness) -> None:
    elsewhere = await other_worker(two_backends, "w2")
    jobs = [await elsewhere.submit(cpus=4, fallback=("ssh",)) for _ in range(3)]
    assert [(await elsewhere.attempt(job)).backend for job in jobs[:2]] == ["local", "ssh"]
    waiting = (await elsewhere.world(jobs[2])).job.waiting
    assert waiting.startswith("local: waits for 4 CPUs: 0 free, held by job-")
    assert "; ssh: waits for 4 CPUs" in waiting


# Several queues


async def test_queues_with_a_common_backend_take_turns_in_order_of_arrival(two_backends: ControlHarness) -> None:
    harness = two_backends
    here, there = await harness.submit(cpus=4), await harness.submit(cpus=4, backend="ssh")
    either = await harness.submit(cpus=4, fallback=("ssh",))
    only_there = await harness.submit(cpus=4, backend="ssh")
    only_here = await harness.submit(cpus=4)
    assert await states(harness, either, only_there, only_here) == ["queued"] * 3
    await harness.host_up()
    await (await harness.runner(here)).end()
    assert (await harness.attempt(either)).backend == "local"
    assert await states(harness, only_there, only_here) == ["queued"] * 2
    await (await harness.runner(there)).end()
    assert await states(harness, only_there, only_here) == ["starting", "queued"]


async def test_who_waits_for_either_backend_holds_back_later_jobs_on_both(two_backends: ControlHarness) -> None:
    harness = two_backends
    for name in ("local", "ssh"):
        await harness.submit(cpus=2, backend=name)
    large = await harness.submit(cpus=4, fallback=("ssh",))
    small = [await harness.submit(cpus=1, backend=name) for name in ("local", "ssh")]
    assert await states(harness, large, *small) == ["queued"] * 3


async def test_a_job_in_the_queue_moves_on_when_another_backend_has_room(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, cloud := FakeCloud())
    cloud.sold_out = set(cloud.rates)
    await harness.offers.refresh()
    await harness.submit(cpus=4)
    job = await harness.submit(cpus=1, fallback=("cloud",))
    waiting = (await harness.world(job)).job.waiting
    assert "local: waits for 1 CPUs" in waiting
    assert "cloud: waits for a machine on cloud: sold out" in waiting
    cloud.sold_out = set()
    await harness.offers.refresh()
    await harness.place()
    assert (await harness.attempt(job)).backend == "cloud"
    events = {row["type"]: row["data"] for row in await harness.rows(t.events) if row["job"] == job}
    assert "local: waits for 1 CPUs" in events["moved_on"]
    await give_back(harness.ports.db)


# Refusals


@pytest.fixture
async def clouds(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """Two clouds of one zone each, beside this computer."""
    zone = {"north-1": 900_000}
    harness = await make_harness(tmp_path, FakeCloud("aws", rates=zone), FakeCloud("gcp", rates=zone))
    yield harness
    await give_back(harness.ports.db)


async def refuse(harness: ControlHarness) -> None:
    """Send the launches that are due, which are refused; the sweep finds that out."""
    while await harness.performer.perform_due():
        await harness.reconciler.round()


async def test_after_a_refusal_the_next_backend_is_taken_at_once(clouds: ControlHarness) -> None:
    clouds.backends["aws"].answers = ["refused"]
    job = await clouds.submit(backend="aws", fallback=("gcp",))
    await refuse(clouds)
    attempts = (await clouds.world(job)).attempts
    assert [(a.backend, a.reason) for a in attempts] == [("aws", Reason.REFUSED), ("gcp", None)]
    assert attempts[1].placed_at == clouds.clock.now()


async def test_after_all_have_refused_it_waits_with_growing_pauses(clouds: ControlHarness) -> None:
    for backend in clouds.backends.values():
        backend.answers = ["refused"]
    job = await clouds.submit(backend="aws", fallback=("gcp",), retries={"wait_seconds": 20})
    starts: dict[str, list[float]] = {"aws": [], "gcp": []}
    for _ in range(60):
        await refuse(clouds)
        clouds.clock.move(await clouds.scheduler.round())
        await clouds.place()
    for attempt in (await clouds.world(job)).attempts:
        starts[attempt.backend].append(attempt.placed_at)
    for times in starts.values():
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert [round(pause) for pause in pauses[:6]] == [2, 4, 8, 16, 20, 20], "it grows up to the job's own wait"
    assert starts["gcp"][0] == starts["aws"][0], "the first refusal cost no time"


async def test_the_round_is_due_when_a_pause_ends(clouds: ControlHarness) -> None:
    clouds.backends["aws"].answers = ["refused", "ok"]
    job = await clouds.submit(backend="aws")
    await refuse(clouds)
    world = await clouds.world(job)
    why = "waits for a machine on aws: all 1 offers that fit have failed it; it tries again"
    assert (world.live, world.job.waiting) == (None, why)
    assert await clouds.scheduler.round() == FIRST_PAUSE
    clouds.clock.move(FIRST_PAUSE)
    await clouds.place()
    assert (await clouds.attempt(job)).number == 2


async def test_a_shared_machine_that_cannot_be_launched_leads_to_the_next_backend(two_backends: ControlHarness) -> None:
    harness = two_backends
    harness.backend.answers = ["refused"]
    job = await harness.submit(fallback=("ssh",))
    await refuse(harness)
    harness.clock.move(FIRST_WAIT)
    await harness.place()
    attempts = (await harness.world(job)).attempts
    assert [(a.backend, a.reason) for a in attempts] == [("local", Reason.LAUNCH_FAILED), ("ssh", None)]


async def test_a_job_that_is_refused_holds_back_nobody(harness: ControlHarness) -> None:
    harness.backend.answers = ["refused", "ok"]
    refused = await harness.submit(cpus=4)
    small = await harness.submit(cpus=1)
    assert await states(harness, small) == ["queued"]
    await refuse(harness)
    assert await states(harness, refused, small) == ["queued", "provisioning"]


async def test_failures_of_long_ago_do_not_count(clouds: ControlHarness) -> None:
    clouds.backends["aws"].answers = ["refused"]
    job = await clouds.submit(backend="aws")
    await refuse(clouds)
    world, now = await clouds.world(job), clouds.clock.now()
    (failures,) = waiting_job(world, now).failures.values()
    assert failures == Failures(1, now + FIRST_PAUSE)
    assert not waiting_job(world, now + FAILURE_SECONDS).failures


async def test_a_job_that_is_resumed_pauses_for_nothing_but_what_failed_it_still_ranks_behind(
    tmp_path: Path,
) -> None:
    harness = await make_harness(tmp_path, cloud := FakeCloud())
    cloud.answers = ["refused"]
    job = await harness.submit(backend="cloud")
    await refuse(harness)
    await service(harness).jobs.cancel(OWNER, job)
    cloud.answers = ["ok"]
    await service(harness).jobs.resume(OWNER, job, Resumption())
    world, now = await harness.world(job), harness.clock.now()
    failures = waiting_job(world, now).failures
    assert len(failures) == len(cloud.rates)
    assert set(failures.values()) == {Failures(1)}
    await harness.place()
    assert (await harness.world(job)).live is not None
    await give_back(harness.ports.db)


# Decisions that are stale when they are carried out


class Interrupted(InlineCalls):
    """Let something happen between the decisions of a round and carrying them out, once."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], Awaitable[Any]] | None = None

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        result = await super().run(lane, work, deadline)
        if lane == LANE and self.then is not None:
            then, self.then = self.then, None
            await then()
        return result


@dataclass
class Waiting:
    """A node that has just become free for a queued job: `harness` is about to decide, `other` has not the duty."""

    harness: ControlHarness
    other: ControlHarness
    calls: Interrupted
    job: str

    async def decide_while(self, then: Callable[[], Awaitable[Any]]) -> None:
        self.calls.then = then
        await self.harness.scheduler.round()
        assert self.calls.then is None, "nothing was decided"

    async def hide(self, until: float) -> None:
        """Let the job not be ready before this time, without a change of its version."""
        change = update(t.jobs).where(t.jobs.c.id == self.job).values(not_before=until)
        await self.harness.sql(lambda conn: conn.execute(change).rowcount)


@pytest.fixture
async def waiting(harness: ControlHarness) -> Waiting:
    calls = Interrupted()
    deciding = with_calls(harness, calls)
    await deciding.offers.refresh()
    await deciding.duties.renew(harness.ports.db, harness.clock)
    other = await other_worker(harness, "w2")
    first, job = await other.submit(cpus=4), await other.submit(cpus=4)
    await other.host_up()
    await (await other.runner(first)).end()
    assert await states(other, job) == ["queued"]
    return Waiting(deciding, other, calls, job)


async def test_a_job_that_changed_since_the_decision_is_decided_again(waiting: Waiting) -> None:
    async def change() -> None:
        await waiting.other.writer.write(lambda unit: unit.advance(_world(unit, waiting.job), f.Waits("something new")))

    await waiting.decide_while(change)
    assert await states(waiting.harness, waiting.job) == ["queued"]
    await waiting.harness.place()
    assert await states(waiting.harness, waiting.job) == ["starting"]


async def test_a_job_that_was_cancelled_since_the_decision_stays_cancelled(waiting: Waiting) -> None:
    async def cancel() -> None:
        await waiting.other.writer.write(lambda unit: unit.advance(_world(unit, waiting.job), f.CancelRequested()))

    await waiting.decide_while(cancel)
    assert await states(waiting.harness, waiting.job) == ["cancelled"]
    assert len((await waiting.harness.world(waiting.job)).attempts) == 0


async def test_slots_that_a_submission_took_since_the_decision_are_not_given_twice(waiting: Waiting) -> None:
    taken: list[str] = []

    async def submit() -> None:
        await waiting.hide(END_OF_TIME / 2)
        taken.append(await waiting.other.submit(cpus=1))
        await waiting.hide(0.0)

    await waiting.decide_while(submit)
    assert await states(waiting.harness, *taken, waiting.job) == ["starting", "queued"]
    await waiting.harness.place()
    assert "waits for 4 CPUs: 3 free" in (await waiting.harness.world(waiting.job)).job.waiting
    await (await waiting.other.runner(taken[0])).end()
    await waiting.harness.place()
    assert await states(waiting.harness, waiting.job) == ["starting"]


async def test_a_machine_that_began_to_end_since_the_decision_is_waited_for(waiting: Waiting) -> None:
    machine = await waiting.harness.machine()

    async def release() -> None:
        await waiting.other.change_machine(machine.id, f.Unwanted("nothing runs here"))

    await waiting.decide_while(release)
    assert await states(waiting.harness, waiting.job) == ["queued"]
    await waiting.harness.place()
    assert (await waiting.harness.world(waiting.job)).job.waiting.startswith("waits until the last agent on this comp")
    await waiting.harness.performer.perform_due()
    await waiting.harness.place()
    assert await states(waiting.harness, waiting.job) == ["provisioning"]


async def test_a_round_whose_duty_went_to_another_server_carries_out_nothing(waiting: Waiting) -> None:
    async def take_over() -> None:
        waiting.harness.clock.move(HOLD_SECONDS + 1)
        await waiting.other.duties.renew(waiting.harness.ports.db, waiting.harness.clock)

    await waiting.decide_while(take_over)
    assert await states(waiting.harness, waiting.job) == ["queued"]
    await waiting.other.place()
    assert await states(waiting.harness, waiting.job) == ["starting"]


def _world(unit: UnitOfWork, job: str) -> World:
    world = repository.load_world(unit.conn, job)
    assert world is not None
    return world


# A provider's queue


@dataclass
class BatchSystem(FakeBackend):
    name: str = "slurm"
    capabilities: Capabilities = Capabilities(reach=Reach.LOOPBACK, capacity=ProviderQueue(1), bills=False)

    def offers(self, need: Need) -> Sequence[Offer]:
        self._reach()
        return [Offer(self.name, "here", "partition", self.capacity, 0)]


@pytest.fixture
async def slurm(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, BatchSystem())
    yield harness
    await give_back(harness.ports.db)


async def test_as_many_machines_wait_in_a_providers_queue_as_may(slurm: ControlHarness) -> None:
    first, second = await slurm.submit(backend="slurm"), await slurm.submit(backend="slurm")
    assert await states(slurm, first, second) == ["provisioning", "queued"]
    why = "waits for its turn: 1 of our machines queue on slurm"
    assert (await slurm.world(second)).job.waiting == why
    await slurm.host_up()
    await slurm.place()
    assert await states(slurm, second) == ["provisioning"], "the other one runs, so it is no longer in the queue"


async def test_a_full_provider_queue_is_passed_over(slurm: ControlHarness) -> None:
    await slurm.submit(backend="slurm")
    job = await slurm.submit(backend="slurm", fallback=("local",))
    assert (await slurm.attempt(job)).backend == "local"


async def test_a_machine_that_joined_the_queue_since_the_decision_takes_its_turn(slurm: ControlHarness) -> None:
    calls = Interrupted()
    deciding = with_calls(slurm, calls)
    await deciding.duties.renew(slurm.ports.db, slurm.clock)
    other = await other_worker(slurm, "w2")
    first, job = await other.submit(backend="slurm"), await other.submit(backend="slurm")
    await other.host_up()
    await deciding.offers.fetch([("slurm", waiting_job(await slurm.world(job), 0.0).need)], 1.0)
    late: list[str] = []

    async def submit() -> None:
        late.append(await other.submit(backend="slurm"))

    calls.then = submit
    await deciding.place()
    assert await states(slurm, first, *late, job) == ["provisioning", "provisioning", "queued"]


# After a restore


async def test_nothing_starts_until_a_restore_is_confirmed(harness: ControlHarness) -> None:
    backup_at = harness.clock.now()
    harness.clock.move(60)
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), backup_at))
    await harness.duties.renew(harness.ports.db, harness.clock)
    first, second = await harness.submit(), await harness.submit()
    await harness.place()
    assert await states(harness, first, second) == ["queued", "queued"]
    assert (await harness.world(first)).job.waiting == f"{restore_hold.WHY} {restore_hold.FIX}"
    version = (await harness.world(first)).job.version
    await harness.place()
    assert (await harness.world(first)).job.version == version, "it is said once"
    await harness.sql(lambda conn: restore_hold.confirm(conn, harness.clock.now()))
    await harness.place()
    assert await states(harness, first, second) == ["provisioning", "provisioning"]
