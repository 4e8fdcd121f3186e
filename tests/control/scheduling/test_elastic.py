"""Backends that make machines on demand: one for each attempt, tried by price, left when they have none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.control.clouds import FakeCloud
from tests.control.harness import ControlHarness, FakeRunner, give_back, make_harness, service

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.control.machines.machine_factory import HOST_SECONDS, SAVING_SECONDS, STAGING_SECONDS, LeaseTerms
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import NoCapacity, RefusedByPolicy, UnknownName, Unreachable
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.wire.documents.messages import MessageKind


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
async def harness(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, cloud)
    yield harness
    await give_back(harness.ports.db)


async def running(harness: ControlHarness, **more: object) -> tuple[str, FakeRunner]:
    return await harness.running(**{"backend": "cloud", **more})


async def interrupt(harness: ControlHarness, cloud: FakeCloud, machine: str) -> None:
    cloud.show(machine, Seen.INTERRUPTED)
    for _ in range(2):
        await harness.poller.poll()
        harness.clock.move(6)
    await harness.listen(10)


async def test_a_job_gets_a_machine_of_its_own_with_an_end(harness: ControlHarness) -> None:
    job = await harness.submit(backend="cloud")
    attempt, machine = await harness.attempt(job), await harness.machine()
    assert machine.owner == f"attempt:{attempt.id}"
    assert (machine.bills, machine.simulated, machine.market) == (True, True, Market.ON_DEMAND)
    assert machine.ends_at == harness.clock.now() + 30 + LeaseTerms().longest_seconds
    assert machine.lease_seconds == LeaseTerms().lease_seconds
    assert machine.host_due == harness.clock.now() + 10 + 5 + 30 + HOST_SECONDS


async def test_the_end_of_its_life_is_part_of_the_call(harness: ControlHarness, cloud: FakeCloud) -> None:
    await harness.submit(backend="cloud", seconds=600)
    machine = await harness.machine()
    expected = harness.clock.now() + 30 + STAGING_SECONDS + 600 + 10 + SAVING_SECONDS
    assert machine.ends_at == cloud.orders[-1].ends_at == expected


async def test_two_jobs_have_two_machines(harness: ControlHarness) -> None:
    jobs = [await harness.submit(backend="cloud") for _ in range(2)]
    machines = {(await harness.attempt(job)).slots[0].machine for job in jobs}
    assert len(machines) == 2


async def test_its_machine_is_released_when_it_ends(harness: ControlHarness, cloud: FakeCloud) -> None:
    job, runner = await running(harness)
    await runner.end()
    assert (await harness.machine()).state is MachineState.RELEASING
    await harness.performer.perform_due()
    harness.clock.move(10)
    await harness.performer.perform_due()
    assert [made.seen for made in cloud.made.values()] == [Seen.GONE]
    assert (await harness.machine()).state is MachineState.GONE
    assert (await harness.world(job)).job.state is JobState.COMPLETED


async def test_spot_is_cheaper_and_asked_for(harness: ControlHarness) -> None:
    await harness.submit(backend="cloud", market="spot", regions=("south",))
    machine = await harness.machine()
    assert (machine.market, machine.region) == (Market.SPOT, "south-1")


async def test_a_refused_launch_is_tried_in_another_zone_without_charge(
    harness: ControlHarness, cloud: FakeCloud
) -> None:
    cloud.answers = ["refused", "ok"]
    job = await harness.submit(backend="cloud")
    await harness.performer.perform_due()
    await harness.listen(10)
    attempts = (await harness.world(job)).attempts
    assert [a.reason for a in attempts] == [Reason.REFUSED, None]
    regions = [(await harness.machine(a.slots[0].machine)).region for a in attempts]
    assert regions == ["north-1", "north-2"]


async def test_where_nothing_is_left_the_next_backend_is_taken(harness: ControlHarness, cloud: FakeCloud) -> None:
    cloud.sold_out = set(cloud.rates)
    await harness.offers.refresh()
    job = await harness.submit(backend="cloud", fallback=("local",))
    await harness.place()
    assert (await harness.attempt(job)).backend == "local"
    assert "moved_on" in [row["type"] for row in await harness.rows(t.events)]


async def test_on_the_last_backend_it_waits_and_says_why(harness: ControlHarness, cloud: FakeCloud) -> None:
    cloud.sold_out = set(cloud.rates)
    await harness.offers.refresh()
    job = await harness.submit(backend="cloud")
    assert (await harness.world(job)).job.waiting == "waits for a machine on cloud: sold out"
    cloud.sold_out = set()
    await harness.offers.refresh()
    await harness.place()
    assert (await harness.attempt(job)).backend == "cloud"


async def test_a_reclaimed_machine_means_the_next_backend_from_the_last_checkpoint(
    harness: ControlHarness, cloud: FakeCloud
) -> None:
    job, runner = await running(harness, market="spot", fallback=("local",))
    told = {"name": "step-10.pt", "form": "file", "size": 7, "sha256": "a" * 64, "step": 10, "metric": 0.5}
    await runner.say(MessageKind.CHECKPOINT, **told)
    await interrupt(harness, cloud, (await harness.machine()).id)
    world = await harness.world(job)
    assert [a.backend for a in world.attempts] == ["cloud", "local"]
    assert world.attempts[0].reason is Reason.INTERRUPTED
    await harness.host_up()
    document = await harness.agents.desired(world.attempts[1].slots[0].machine, 0, 0)
    assert document is not None
    resumed = document.assignments[0].resume_from
    assert resumed is not None
    assert (resumed.name, resumed.step, resumed.sha256) == ("step-10.pt", 10, "a" * 64)


async def test_a_notice_then_an_orderly_end(harness: ControlHarness) -> None:
    job, runner = await running(harness, fallback=("local",))
    await runner.say(MessageKind.NOTICE, seconds=30)
    exited = runner.message(MessageKind.EXITED, code=0, cause="interrupted")
    await runner.send([exited, runner.message(MessageKind.ENDED)])
    attempts = (await harness.world(job)).attempts
    assert [(a.backend, a.reason) for a in attempts] == [("cloud", Reason.INTERRUPTED), ("local", None)]


async def test_a_job_that_saved_nothing_in_its_machines_time_ends(harness: ControlHarness) -> None:
    job, runner = await running(harness)
    exited = runner.message(MessageKind.EXITED, code=0, cause="suspended")
    await runner.send([exited, runner.message(MessageKind.ENDED)])
    world = await harness.world(job)
    assert (len(world.attempts), world.job.state, world.job.reason) == (1, JobState.FAILED, Reason.SUSPENDED)
    await service(harness).jobs.resume(OWNER, job, Resumption())
    await harness.place()
    assert (await harness.attempt(job)).number == 2, "somebody wants it all the same"


async def test_a_suspended_job_takes_another_machine_there(harness: ControlHarness) -> None:
    job, runner = await running(harness)
    await runner.say(MessageKind.CHECKPOINT, name="a.pt", form="file", size=1, sha256="a" * 64, step=1, metric=None)
    exited = runner.message(MessageKind.EXITED, code=0, cause="suspended")
    await runner.send([exited, runner.message(MessageKind.ENDED)])
    attempts = (await harness.world(job)).attempts
    assert [a.state for a in attempts] == [AttemptState.ENDED, AttemptState.LAUNCHING]
    assert {a.backend for a in attempts} == {"cloud"}


async def test_the_document_says_how_long_the_machine_lives(harness: ControlHarness) -> None:
    await harness.submit(backend="cloud", seconds=600)
    await harness.host_up()
    machine = await harness.machine()
    harness.clock.move(100)
    document = await harness.agents.desired(machine.id, 0, 0)
    assert document is not None
    assert machine.ends_at is not None
    assert document.ends_in == pytest.approx(machine.ends_at - harness.clock.now())
    assert document.lease_seconds == LeaseTerms().lease_seconds


async def test_a_try_ends_when_its_money_is_spent_and_its_machine_soon_after(harness: ControlHarness) -> None:
    job = await harness.submit(backend="cloud", max_cost_usd=0.1)
    await harness.host_up()
    machine = await harness.machine()
    document = await harness.agents.desired(machine.id, 0, 0)
    assert document is not None
    bought = 400 - 30  # at $0.90 an hour, less the start
    assert document.assignments[0].limits.seconds == bought
    assert machine.ends_at == machine.created_at + 30 + STAGING_SECONDS + bought + 10 + SAVING_SECONDS
    assert "for at most 6m 10s, which $0.10 buys)" in (await harness.world(job)).job.placement


async def test_a_shorter_limit_of_its_own_stands(harness: ControlHarness) -> None:
    await harness.submit(backend="cloud", max_cost_usd=0.1, seconds=60)
    await harness.host_up()
    document = await harness.agents.desired((await harness.machine()).id, 0, 0)
    assert document is not None
    assert document.assignments[0].limits.seconds == 60


async def test_less_money_than_the_shortest_try_costs_is_refused(harness: ControlHarness) -> None:
    for little in (0, 0.000001, 0.007):
        with pytest.raises(RefusedByPolicy, match=r"it would cost \$0\.00775") as refused:
            await harness.submit(backend="cloud", max_cost_usd=little)
        assert "Raise max_cost_usd" in refused.value.fix
    with pytest.raises(NoCapacity):
        await harness.submit(backend="cloud", max_cost_usd=0, cpus=64)


async def test_without_money_it_runs_where_it_is_free_and_unbounded(harness: ControlHarness) -> None:
    job = await harness.submit(backend="cloud", fallback=("local",), max_cost_usd=0)
    await harness.place()
    attempt = await harness.attempt(job)
    assert (attempt.backend, attempt.slots[0].allocation.seconds) == ("local", None)


async def test_an_unknown_backend_among_several_is_refused(harness: ControlHarness) -> None:
    with pytest.raises(UnknownName):
        await harness.submit(backend="cloud", fallback=("nowhere",))


async def test_too_large_for_every_backend_is_refused_with_all_reasons(harness: ControlHarness) -> None:
    with pytest.raises(NoCapacity) as refused:
        await harness.submit(backend="cloud", fallback=("local",), cpus=64)
    assert {item["backend"] for item in refused.value.data["rejected"]} == {"cloud", "local"}


async def test_large_enough_on_one_backend_is_taken(harness: ControlHarness) -> None:
    job = await harness.submit(backend="cloud", fallback=("local",), cpus=4)
    await harness.place()
    assert (await harness.attempt(job)).backend == "local"


async def test_a_backend_that_has_not_answered_yet_is_waited_for(tmp_path: Path) -> None:
    slow = FakeCloud(down=Unreachable("Not yet."))
    harness = await make_harness(tmp_path, slow)
    job = await harness.submit(backend="cloud")
    assert (await harness.world(job)).job.waiting == "cloud has not reported its offers yet"
    other = await harness.submit(backend="cloud", fallback=("local",))
    assert (await harness.attempt(other)).backend == "local", "a backend that does not answer is passed over"
    slow.down = None
    await harness.offers.refresh()
    await harness.place()
    assert (await harness.attempt(job)).backend == "cloud"
    await give_back(harness.ports.db)


async def test_a_backend_that_can_never_hold_it_is_left_for_one_that_can(harness: ControlHarness) -> None:
    job = await harness.submit(backend="local", fallback=("cloud",), gpus=0, memory=3 * GiB, cpus=2)
    assert (await harness.attempt(job)).backend == "local", "it fits"
    large = await harness.submit(backend="cloud", fallback=("local",), cpus=4)
    await harness.place()
    assert (await harness.world(large)).job.waiting.startswith("cloud: waits for a machine on cloud: asks for 4 CPUs;")
    assert "local: waits for 4 CPUs: 2 free, held by" in (await harness.world(large)).job.waiting


async def test_what_only_the_cloud_can_hold_never_goes_to_the_laptop(harness: ControlHarness, cloud: FakeCloud) -> None:
    cloud.capacity_override = Capacity(cpus=64, memory_bytes=256 * GiB)
    await harness.offers.refresh()
    job, _ = await running(harness, cpus=32, fallback=("local",))
    await interrupt(harness, cloud, (await harness.machine()).id)
    await harness.listen(10)
    assert [a.backend for a in (await harness.world(job)).attempts] == ["cloud", "cloud"]


async def test_a_zone_that_took_a_machine_back_is_tried_last(harness: ControlHarness, cloud: FakeCloud) -> None:
    job, _ = await running(harness, market="spot")
    await interrupt(harness, cloud, (await harness.machine()).id)
    await harness.listen(10)
    regions = [(await harness.machine(a.slots[0].machine)).region for a in (await harness.world(job)).attempts]
    assert regions == ["north-1", "north-2"]


async def test_without_spot_it_takes_what_cannot_be_taken_back(harness: ControlHarness, cloud: FakeCloud) -> None:
    cloud.no_spot = True
    await harness.offers.refresh()
    job = await harness.submit(backend="cloud", market="spot", spot_fallback=True)
    assert (await harness.machine((await harness.attempt(job)).slots[0].machine)).market is Market.ON_DEMAND


async def test_a_job_for_a_backend_that_is_not_connected_says_so(harness: ControlHarness) -> None:
    job = await harness.submit(backend="cloud", fallback=("local",))
    await harness.sql(
        lambda conn: conn.execute(update(t.jobs).values(state="queued", queue="gone", waiting="")).rowcount
    )
    await harness.place()
    assert (await harness.world(job)).job.waiting == "waits for gone, which is not connected"


async def test_a_job_that_ends_for_want_of_checkpoints_keeps_no_other_from_its_turn(harness: ControlHarness) -> None:
    job, runner = await running(harness, cpus=2, fallback=("local",))
    first, other = await harness.submit(cpus=4), await harness.submit(cpus=4)
    exited = runner.message(MessageKind.EXITED, code=0, cause="suspended")
    await runner.send([exited, runner.message(MessageKind.ENDED)])
    assert (await harness.world(job)).job.state is JobState.FAILED
    await harness.performer.perform_due()
    await (await harness.runner(first)).end()
    assert (await harness.attempt(other)).backend == "local"
    assert len(await harness.rows(t.machines)) == 2


async def test_spot_that_is_sold_out_is_waited_for_and_the_option_is_named(
    harness: ControlHarness, cloud: FakeCloud
) -> None:
    cloud.sold_out = set(cloud.rates)
    await harness.offers.refresh()
    job = await harness.submit(backend="cloud", market="spot")
    why = "waits for a machine on cloud: sold out; with --spot-fallback it could run on demand"
    assert (await harness.world(job)).job.waiting == why


async def test_this_computer_takes_a_job_that_asks_for_spot(harness: ControlHarness, cloud: FakeCloud) -> None:
    cloud.sold_out = set(cloud.rates)
    job = await harness.submit(backend="cloud", fallback=("local",), market="spot")
    assert (await harness.attempt(job)).backend == "local"


async def test_jobs_of_another_size_are_asked_for_on_their_own(harness: ControlHarness, cloud: FakeCloud) -> None:
    jobs = [await harness.submit(backend="cloud", cpus=cpus) for cpus in (1, 2, 2)]
    assert await harness.count(t.machines) == len(jobs)
    assert {need.resources.cpus for need in harness.offers.by_need("cloud")} == {None, 1, 2}


async def test_a_gang_gets_machines_of_one_offer(harness: ControlHarness, cloud: FakeCloud) -> None:
    harness.submitter._most_nodes = 3
    attempt = await harness.attempt(await harness.submit(backend="cloud", nodes=3))
    machines = [await harness.machine(slot.machine) for slot in attempt.slots]
    assert [slot.rank for slot in attempt.slots] == [0, 1, 2]
    assert {machine.region for machine in machines} == {"north-1"}
    assert {machine.owner for machine in machines} == {f"attempt:{attempt.id}"}
    assert [order.rank for order in cloud.orders] == [0, 1, 2]
