from __future__ import annotations

from tests.control.world import Rig, other_worker

from crucible.control.db import schema as t
from crucible.control.reconcile.roles import HOLD_SECONDS
from crucible.core.compute.resources import GiB
from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.lifecycle import facts as f


async def states(rig: Rig, *jobs: str) -> list[str]:
    return [(await rig.world(job)).job.state.value for job in jobs]


async def gpus(rig: Rig, job: str) -> tuple[int, ...]:
    return (await rig.attempt(job)).slots[0].allocation.gpus


async def test_the_first_machine_is_intended_once(rig: Rig) -> None:
    for _ in range(3):
        await rig.submit()
    assert await rig.count(t.machines) == 1
    assert [e["kind"] for e in await rig.rows(t.effects)] == ["launch"]
    assert (await rig.machine()).owner == "pool:local"


async def test_several_jobs_of_one_pass_share_the_new_machine(rig: Rig) -> None:
    elsewhere = await other_worker(rig, "w2")
    jobs = [await elsewhere.submit() for _ in range(3)]
    assert await rig.count(t.machines) == 0
    await rig.place()
    assert await rig.count(t.machines) == 1
    assert await rig.count(t.effects) == 1
    machine = await rig.machine()
    assert {(await rig.attempt(job)).slots[0].machine for job in jobs} == {machine.id}
    (row,) = await rig.rows(t.machines)
    assert row["desired_version"] == len(jobs), "each of them changed the machine's document"


async def test_first_in_first_out(rig: Rig) -> None:
    first = await rig.submit(cpus=3)
    large = await rig.submit(cpus=4)
    small = await rig.submit(cpus=1)
    assert await states(rig, first, large, small) == ["provisioning", "queued", "queued"]
    world = await rig.world(large)
    assert "4 CPUs: 1 free" in world.job.waiting
    await rig.host_up()
    await (await rig.runner(first)).end()
    assert await states(rig, first, large, small) == ["completed", "starting", "queued"]
    await (await rig.runner(large)).end()
    assert await states(rig, large, small) == ["completed", "starting"]


async def test_the_end_of_one_job_places_as_many_as_fit(rig: Rig) -> None:
    large = await rig.submit(cpus=4)
    small = [await rig.submit(cpus=1) for _ in range(5)]
    await rig.host_up()
    await (await rig.runner(large)).end()
    assert await states(rig, *small) == ["starting"] * 4 + ["queued"]


async def test_cpus_are_counted_in_parts(rig: Rig) -> None:
    jobs = [await rig.submit(cpus=0.4, memory=GiB) for _ in range(11)]
    assert await states(rig, *jobs) == ["provisioning"] * 10 + ["queued"]


async def test_memory_is_counted(rig: Rig) -> None:
    jobs = [await rig.submit(cpus=0.1, memory=6 * GiB) for _ in range(3)]
    assert await states(rig, *jobs) == ["provisioning", "provisioning", "queued"]
    assert "6 GiB of memory" in (await rig.world(jobs[2])).job.waiting


async def test_gpus_are_given_by_index_and_come_back(rig: Rig) -> None:
    one, two, three = [await rig.submit(gpus=1) for _ in range(3)]
    assert [await gpus(rig, job) for job in (one, two)] == [(0,), (1,)]
    assert await states(rig, three) == ["queued"]
    assert "1 GPU: 0 free" in (await rig.world(three)).job.waiting
    await rig.host_up()
    await (await rig.runner(one)).end()
    assert await gpus(rig, three) == (0,)


async def test_a_job_without_a_size_takes_the_whole_computer(rig: Rig) -> None:
    whole = await rig.submit(resources={})
    beside = await rig.submit(cpus=0.1)
    slot = (await rig.attempt(whole)).slots[0]
    assert (slot.allocation.cpus, slot.allocation.memory_bytes, slot.allocation.gpus) == (4, 16 * GiB, (0, 1))
    assert await states(rig, beside) == ["queued"]


async def test_the_placement_says_why_there(rig: Rig) -> None:
    chosen = await rig.submit(backend="local")
    found = await rig.submit()
    assert (await rig.world(chosen)).job.placement.endswith("because you asked for it")
    assert "4 CPUs, 16 GiB, 2 x T4, free) because it is free" in (await rig.world(found)).job.placement


async def test_a_job_that_its_place_can_no_longer_hold_waits_and_holds_back_nobody(rig: Rig) -> None:
    elsewhere = await other_worker(rig, "w2")
    large = await elsewhere.submit(cpus=4)
    small = await elsewhere.submit(cpus=1)
    rig.backend.capacity = rig.backend.capacity.model_copy(update={"cpus": 2})
    await rig.connected.refresh()
    await rig.place()
    assert await states(rig, large, small) == ["queued", "provisioning"]
    assert (await rig.world(large)).job.waiting == "asks for 4 CPUs; this computer has 2"


async def test_nothing_is_placed_twice(rig: Rig) -> None:
    job = await rig.submit()
    for _ in range(3):
        await rig.place()
    assert len((await rig.world(job)).attempts) == 1
    assert await rig.count(t.effects) == 1


async def test_a_reason_to_wait_is_written_once(rig: Rig) -> None:
    await rig.submit(cpus=4)
    waiting = await rig.submit(cpus=4)
    version = (await rig.world(waiting)).job.version
    await rig.place()
    assert (await rig.world(waiting)).job.version == version


async def test_a_released_machine_holds_its_slots_until_it_is_gone(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.end()
    machine = await rig.machine()
    await rig.change_machine(machine.id, f.Unwanted("nothing runs here"))
    job = await rig.submit()
    assert await states(rig, job) == ["queued"]
    await rig.performer.perform_due()
    assert (await rig.machine(machine.id)).state is MachineState.GONE
    await rig.place()
    assert await states(rig, job) == ["provisioning"]
    assert await rig.count(t.machines) == 2


async def test_an_attempt_on_a_machine_that_is_up_is_not_launching(rig: Rig) -> None:
    await rig.running()
    job = await rig.submit()
    assert (await rig.attempt(job)).state is AttemptState.PLACED
    assert await states(rig, job) == ["starting"]


async def test_without_the_duty_nothing_is_decided(rig: Rig) -> None:
    other = await other_worker(rig, "w2")
    job = await other.submit()
    assert await states(rig, job) == ["queued"]
    await rig.place()
    assert await states(rig, job) == ["provisioning"]


async def test_a_holder_that_was_paused_too_long_decides_nothing(rig: Rig) -> None:
    other = await other_worker(rig, "w2")
    rig.clock.move(HOLD_SECONDS + 1)
    await other.duties.renew(rig.ports.db, rig.clock)
    job = await rig.submit()
    assert await states(rig, job) == ["queued"]
    await other.place()
    assert await states(rig, job) == ["provisioning"]


async def test_a_retry_waits_for_its_time(rig: Rig) -> None:
    job, runner = await rig.running(retries={"user": 1, "wait_seconds": 30})
    await runner.end(code=1)
    world = await rig.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.not_before == rig.clock.now() + 30
    rig.clock.move(29)
    await rig.place()
    assert (await rig.world(job)).live is None
    rig.clock.move(1)
    await rig.place()
    assert [a.number for a in (await rig.world(job)).attempts] == [1, 2]


async def test_a_full_place_stops_only_its_own_queue(two_backends: Rig) -> None:
    rig = two_backends
    await rig.submit(cpus=4)
    here = await rig.submit(cpus=4)
    there = await rig.submit(cpus=4, backend="ssh")
    assert await states(rig, here, there) == ["queued", "provisioning"]
    assert {m["backend"] for m in await rig.rows(t.machines)} == {"local", "ssh"}
