"""Backends whose provider has a queue of its own: waiting, starting, claiming, paying, and being withdrawn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.clouds import ZONES, FakeCloud, FakeQueue
from tests.control.fakes import Killed
from tests.control.harness import ControlHarness, FakeRunner, give_back, make_harness, secret, service

from crucible.backends.base import LaunchRefused, Seen
from crucible.control.agents.agents import NONCE_SECONDS, MachineUnwanted
from crucible.control.db import schema as t
from crucible.control.machines.machine_factory import HOST_SECONDS, SAVING_SECONDS, STAGING_SECONDS
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.control.reconcile.outbox import CLAIM_SECONDS
from crucible.control.scheduling.state_reader import FAILURE_SECONDS
from crucible.core.errors import Conflict, NotAllowed, Unreachable
from crucible.core.lifecycle import JobState, Machine, MachineState, Reason
from crucible.core.people.identity import OWNER

HOUR = 3600.0


@pytest.fixture
def cluster() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
async def harness(cluster: FakeQueue, tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, cluster, FakeCloud())
    yield harness
    await give_back(harness.ports.db)


async def queued(harness: ControlHarness, **more: object) -> str:
    """A job whose machine waits at its provider, and is known to."""
    job = await harness.submit(**{"backend": "cluster", "fallback": ("cloud",), **more})
    await harness.performer.perform_due()
    await look(harness)
    return job


async def look(harness: ControlHarness, seconds: float = 0.0) -> None:
    harness.clock.move(seconds)
    await harness.poller.poll()
    await harness.reconciler.round()


async def settle(harness: ControlHarness) -> None:
    """Performs what is due, until the machine that was released is gone."""
    for _ in range(4):
        await harness.performer.perform_due()
        await look(harness, 10.0)


async def the_machine(harness: ControlHarness) -> Machine:
    return await harness.machine((await harness.rows(t.machines))[0]["id"])


async def claim(harness: ControlHarness, machine: Machine, native_id: str | None = None) -> str:
    nonce = secret("nonce", machine.id).decode()
    return await harness.agents.claim(machine.id, nonce, native_id or f"i-{machine.id}")


# Waiting


async def test_the_job_shows_as_queued_with_the_providers_reason(harness: ControlHarness) -> None:
    job = await queued(harness)
    assert (await the_machine(harness)).state is MachineState.QUEUED
    view = await service(harness).jobs.view(OWNER, job)
    assert (view.status, view.phase) == ("queued", "provisioning")
    assert view.waiting is not None
    assert view.waiting.startswith("waits in the queue of cluster since 2023-11-14 22:13 UTC: it is queued")
    assert view.cost.rate_micros_per_hour == 0
    (shown,) = (await service(harness).machines.list_machines(OWNER)).items
    assert (shown.state, shown.bills, shown.started_at) == ("queued", False, None)
    assert shown.queued_at == "2023-11-14T22:13:20.000Z"


async def test_the_order_says_how_long_it_may_live_and_not_until_when(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    await queued(harness, seconds=600)
    life = STAGING_SECONDS + 600 + 10 + SAVING_SECONDS
    assert (cluster.orders[-1].ends_at, cluster.orders[-1].ends_after) == (None, life)


async def test_it_waits_for_days_and_neither_it_nor_its_nonce_ends(harness: ControlHarness) -> None:
    job = await queued(harness)
    for _ in range(5):
        await look(harness, 86400.0)
    machine = await the_machine(harness)
    assert (machine.state, machine.ends_at, machine.host_due) == (MachineState.QUEUED, None, None)
    assert await claim(harness, machine) == secret("machine", machine.id).decode()
    await look(harness)
    assert (await harness.world(job)).job.waiting == ""


async def test_an_outage_of_the_provider_changes_nothing(harness: ControlHarness, cluster: FakeQueue) -> None:
    await queued(harness)
    before = await the_machine(harness)
    cluster.down = Unreachable("The cluster does not respond.")
    await look(harness, 10 * HOUR)
    assert await the_machine(harness) == before
    cluster.down = None
    cluster.show(before.id, Seen.UNREACHABLE)
    await look(harness, 10 * HOUR)
    assert await the_machine(harness) == before


async def test_one_that_its_provider_drops_is_tried_again_uncharged(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    job = await queued(harness)
    cluster.show((await the_machine(harness)).id, Seen.GONE)
    await look(harness)
    await look(harness, 10.0)
    world = await harness.world(job)
    assert world.attempts[0].reason is Reason.NOT_BEGUN


# Starting


async def test_its_clocks_run_from_the_providers_own_time(harness: ControlHarness, cluster: FakeQueue) -> None:
    await queued(harness, seconds=600)
    harness.clock.move(HOUR)
    machine, start = await the_machine(harness), harness.clock.now() - 40
    cluster.show(machine.id, Seen.STARTING, start)
    await look(harness)
    machine = await the_machine(harness)
    assert (machine.state, machine.started_at) == (MachineState.CREATING, start)
    assert machine.host_due == start + 10 + 5 + HOST_SECONDS
    assert machine.ends_at == start + STAGING_SECONDS + 600 + 10 + SAVING_SECONDS


async def test_what_it_waits_costs_nothing(harness: ControlHarness, cluster: FakeQueue) -> None:
    await queued(harness)
    assert await harness.rows(t.price_segments) == []
    harness.clock.move(HOUR)
    machine, start = await the_machine(harness), harness.clock.now() - 40
    await claim(harness, machine)
    (segment,) = await harness.rows(t.price_segments)
    assert segment["starts_at"] == harness.clock.now()
    cluster.show(machine.id, Seen.UP, start)
    await look(harness)
    (segment,) = await harness.rows(t.price_segments)
    assert segment["starts_at"] == start, "by the provider's time, not by our first look"


async def test_what_is_billed_on_demand_counts_from_the_launch_however_late_it_is_found(
    harness: ControlHarness,
) -> None:
    cloud = harness.backends["cloud"]
    cloud.answers = ["lost", "ok"]
    await harness.submit(backend="cloud")
    sent = harness.clock.now()
    await harness.performer.perform_due()
    harness.clock.move(8 * HOUR)
    await harness.performer.perform_due()
    (segment,) = await harness.rows(t.price_segments)
    assert segment["starts_at"] == sent


async def test_a_job_runs_there_from_end_to_end(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness)
    harness.clock.move(HOUR)
    machine = await the_machine(harness)
    cluster.show(machine.id, Seen.UP)
    await look(harness)
    await harness.host_speaks(machine.id, f"i-{machine.id}")
    runner = await harness.runner(job)
    await runner.end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


# Claims


async def test_the_nonce_works_for_the_id_that_the_provider_gave_alone(harness: ControlHarness) -> None:
    await queued(harness)
    machine = await the_machine(harness)
    with pytest.raises(NotAllowed, match="another id"):
        await claim(harness, machine, "i-of-somebody-else")
    await claim(harness, machine)
    with pytest.raises(Conflict):
        await claim(harness, machine, "i-of-somebody-else")


async def test_it_ends_a_while_after_the_start(harness: ControlHarness, cluster: FakeQueue) -> None:
    await queued(harness)
    harness.clock.move(10 * HOUR)
    machine = await the_machine(harness)
    cluster.show(machine.id, Seen.UP)
    await harness.poller.poll()
    harness.clock.move(NONCE_SECONDS + 1)
    with pytest.raises(NotAllowed, match="expired"):
        await claim(harness, machine)


async def test_it_dies_with_the_withdrawal(harness: ControlHarness) -> None:
    await queued(harness, max_wait_seconds=HOUR)
    await look(harness, HOUR)
    await harness.performer.perform_due()
    with pytest.raises(MachineUnwanted):
        await claim(harness, await the_machine(harness))


# Withdrawal


async def test_a_job_that_waits_for_too_long_goes_on_elsewhere(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness, max_wait_seconds=HOUR)
    await look(harness, HOUR - 60)
    assert [e["kind"] for e in await harness.rows(t.effects)] == ["launch"]
    await look(harness, 60)
    await settle(harness)
    world = await harness.world(job)
    assert [ref.machine for ref in cluster.withdrawn] == [(await the_machine(harness)).id]
    assert [(a.backend, a.reason) for a in world.attempts] == [("cluster", Reason.WITHDRAWN), ("cloud", None)]
    assert world.job.used == {}
    assert (await the_machine(harness)).state is MachineState.GONE


async def test_the_next_attempt_does_not_begin_before_the_provider_says_that_it_is_gone(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    job = await queued(harness, max_wait_seconds=HOUR)
    await look(harness, HOUR)
    cluster.ends = ["kept"]
    await harness.performer.perform_due()
    cluster.show((await the_machine(harness)).id, Seen.QUEUED)
    await settle(harness)
    assert len((await harness.world(job)).attempts) == 1
    assert (await the_machine(harness)).state is MachineState.RELEASING


async def test_one_that_has_started_keeps_its_job(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness, max_wait_seconds=HOUR)
    machine = await the_machine(harness)
    harness.clock.move(HOUR)
    await harness.reconciler.round()
    cluster.show(machine.id, Seen.UP)
    await harness.performer.perform_due()
    machine = await the_machine(harness)
    assert (machine.state, machine.withdrawing, machine.started_at) == (
        MachineState.CREATING,
        False,
        harness.clock.now(),
    )
    await harness.host_speaks(machine.id, f"i-{machine.id}")
    await (await harness.runner(job)).end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED
    assert len((await harness.world(job)).attempts) == 1


async def test_a_host_that_claims_meanwhile_keeps_its_job(harness: ControlHarness, cluster: FakeQueue) -> None:
    await queued(harness, max_wait_seconds=HOUR)
    harness.clock.move(HOUR)
    await harness.reconciler.round()
    await claim(harness, await the_machine(harness))
    await harness.performer.perform_due()
    assert cluster.withdrawn == []
    assert (await the_machine(harness)).state is MachineState.CREATING


async def test_a_withdrawal_without_an_answer_is_asked_for_again(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness, max_wait_seconds=HOUR)
    cluster.lost_withdrawals = 1
    await look(harness, HOUR)
    await settle(harness)
    assert len(cluster.withdrawn) >= 1
    assert [a.reason for a in (await harness.world(job)).attempts] == [Reason.WITHDRAWN, None]


@pytest.mark.parametrize("point", ["withdraw.before_call", "withdraw.after_call"])
async def test_a_server_that_dies_there_leaves_a_withdrawal_to_the_next(
    harness: ControlHarness, cluster: FakeQueue, point: str
) -> None:
    def die() -> None:
        raise Killed

    job = await queued(harness, max_wait_seconds=HOUR)
    await look(harness, HOUR)
    arm(point, die)
    with pytest.raises(Killed):
        await harness.performer.perform_due()
    disarm()
    assert (await the_machine(harness)).state is MachineState.QUEUED
    harness.clock.move(CLAIM_SECONDS)
    await settle(harness)
    assert cluster.made[(await the_machine(harness)).id].seen is Seen.GONE
    assert [a.reason for a in (await harness.world(job)).attempts] == [Reason.WITHDRAWN, None]


async def test_one_that_fits_nowhere_else_goes_on_waiting(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness, fallback=(), max_wait_seconds=HOUR)
    await look(harness, 2 * HOUR)
    await settle(harness)
    assert cluster.withdrawn == []
    assert "it can run nowhere else" in (await harness.world(job)).job.waiting


async def test_one_keeps_its_place_until_another_backend_has_room(harness: ControlHarness, cluster: FakeQueue) -> None:
    job, cloud = await queued(harness, max_wait_seconds=HOUR), harness.backends["cloud"]
    assert isinstance(cloud, FakeCloud)
    cloud.sold_out = set(ZONES)
    await harness.offers.refresh()
    await look(harness, 2 * HOUR)
    await settle(harness)
    assert cluster.withdrawn == []
    assert (
        "longer than 1h 00m, but no other of its backends has room for it now" in (await harness.world(job)).job.waiting
    )
    cloud.sold_out = set()
    await harness.offers.refresh()
    await look(harness, 60)
    await settle(harness)
    assert [(a.backend, a.reason) for a in (await harness.world(job)).attempts] == [
        ("cluster", Reason.WITHDRAWN),
        ("cloud", None),
    ]


async def test_one_keeps_its_place_if_the_others_refused_it_lately(harness: ControlHarness, cluster: FakeQueue) -> None:
    cloud = harness.backends["cloud"]
    cloud.answers = [LaunchRefused("No capacity.")]
    spec = {"backend": "cloud", "fallback": ("cluster",), "max_wait_seconds": 60.0}
    job = await queued(harness, **spec)
    for _ in range(8):
        await harness.performer.perform_due()
        await harness.place()
        await look(harness)
    attempts = (await harness.world(job)).attempts
    assert {a.backend for a in attempts[:-1]} == {"cloud"}
    assert attempts[-1].backend == "cluster"
    await look(harness, 120.0)
    assert cluster.withdrawn == []
    assert "no other of its backends has room" in (await harness.world(job)).job.waiting
    cloud.answers = ["ok"]
    await harness.offers.refresh()
    await look(harness, FAILURE_SECONDS)
    await settle(harness)
    assert len(cluster.withdrawn) == 1


async def test_one_whose_alternative_was_not_asked_for_long_is_withdrawn_once_it_has_answered(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    job = await queued(harness, max_wait_seconds=HOUR)
    harness.offers.forget("cloud")
    await look(harness, HOUR)
    assert cluster.withdrawn == []
    await harness.place()
    await look(harness, 60)
    await settle(harness)
    assert [a.reason for a in (await harness.world(job)).attempts] == [Reason.WITHDRAWN, None]


async def test_a_cancelled_job_leaves_the_queue(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await queued(harness)
    await service(harness).jobs.cancel(OWNER, job)
    await settle(harness)
    assert (await harness.world(job)).job.state is JobState.CANCELLED
    assert (await the_machine(harness)).state is MachineState.GONE
    assert len(cluster.terminated) >= 1


async def test_a_runner_of_a_queued_machine_has_a_machine_that_is_up(harness: ControlHarness) -> None:
    """Its claim alone, before any look at the provider, is enough to run."""
    job = await queued(harness)
    machine = await the_machine(harness)
    await harness.host_speaks(machine.id, f"i-{machine.id}")
    assert (await the_machine(harness)).state is MachineState.UP
    await FakeRunner(harness.agents, (await harness.attempt(job)).id).end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED
