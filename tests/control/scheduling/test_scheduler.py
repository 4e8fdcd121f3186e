from __future__ import annotations

from tests.control.harness import ControlHarness, other_worker

from crucible.control.db import schema as t
from crucible.control.reconcile.roles import HOLD_SECONDS
from crucible.core.compute.resources import GiB
from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.lifecycle import facts as f


async def states(harness: ControlHarness, *jobs: str) -> list[str]:
    return [(await harness.world(job)).job.state.value for job in jobs]


async def gpus(harness: ControlHarness, job: str) -> tuple[int, ...]:
    return (await harness.attempt(job)).slots[0].allocation.gpus


async def test_the_first_machine_is_intended_once(harness: ControlHarness) -> None:
    for _ in range(3):
        await harness.submit()
    assert await harness.count(t.machines) == 1
    assert [e["kind"] for e in await harness.rows(t.effects)] == ["launch"]
    assert (await harness.machine()).owner == "pool:local"


async def test_several_jobs_of_one_pass_share_the_new_machine(harness: ControlHarness) -> None:
    elsewhere = await other_worker(harness, "w2")
    jobs = [await elsewhere.submit() for _ in range(3)]
    assert await harness.count(t.machines) == 0
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


async def test_a_job_that_its_place_can_no_longer_hold_waits_and_holds_back_nobody(harness: ControlHarness) -> None:
    elsewhere = await other_worker(harness, "w2")
    large = await elsewhere.submit(cpus=4)
    small = await elsewhere.submit(cpus=1)
    harness.backend.capacity = harness.backend.capacity.model_copy(update={"cpus": 2})
    await harness.connected.refresh()
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


async def test_without_the_duty_nothing_is_decided(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    job = await other.submit()
    assert await states(harness, job) == ["queued"]
    await harness.place()
    assert await states(harness, job) == ["provisioning"]


async def test_a_holder_that_was_paused_too_long_decides_nothing(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    harness.clock.move(HOLD_SECONDS + 1)
    await other.duties.renew(harness.ports.db, harness.clock)
    job = await harness.submit()
    assert await states(harness, job) == ["queued"]
    await other.place()
    assert await states(harness, job) == ["provisioning"]


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


async def test_a_full_place_stops_only_its_own_queue(two_backends: ControlHarness) -> None:
    harness = two_backends
    await harness.submit(cpus=4)
    here = await harness.submit(cpus=4)
    there = await harness.submit(cpus=4, backend="ssh")
    assert await states(harness, here, there) == ["queued", "provisioning"]
    assert {m["backend"] for m in await harness.rows(t.machines)} == {"local", "ssh"}
