"""Launches of gangs: one call that makes all machines, or one call for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud, FakeQueue
from tests.control.harness import ControlHarness, FakeRunner, give_back, make_harness, new_id, other_worker

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.core.errors import TimedOut
from crucible.core.ids import Prefix
from crucible.core.lifecycle import JobState, Machine, MachineState, Reason
from crucible.core.lifecycle import facts as f
from crucible.wire.documents.messages import MessageKind

STRANGER = new_id(Prefix.MACHINE, 99)


@pytest.fixture
def cluster() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
async def harness(cluster: FakeQueue, tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, cluster, FakeCloud(), most_nodes=4)
    yield harness
    await give_back(harness.ports.db)


async def machines(harness: ControlHarness) -> list[Machine]:
    return [await harness.machine(row["id"]) for row in await harness.rows(t.machines)]


async def effects(harness: ControlHarness) -> list[str]:
    return [row["kind"] for row in await harness.rows(t.effects) if not row["done"]]


async def submit(harness: ControlHarness, backend: str = "cluster", nodes: int = 3) -> str:
    return await harness.submit(backend=backend, nodes=nodes)


async def test_placement_is_one_transaction_with_one_launch(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await submit(harness)
    attempt, made = await harness.attempt(job), await machines(harness)
    assert [slot.machine for slot in attempt.slots] == [machine.id for machine in made]
    assert {machine.gang for machine in made} == {made[0].id}
    assert await effects(harness) == ["launch"]
    order = cluster.orders[-1]
    assert (order.machine, order.rank, order.ranks, order.others) == (made[0].id, 0, 3, (made[1].id, made[2].id))


async def test_one_call_makes_all_and_all_are_recorded_at_once(harness: ControlHarness, cluster: FakeQueue) -> None:
    await submit(harness)
    await harness.performer.perform_due()
    made = await machines(harness)
    assert len(cluster.launches) == 1
    assert [bootstrap.machine for bootstrap in cluster.bootstraps] == [machine.id for machine in made]
    assert len({bootstrap.nonce for bootstrap in cluster.bootstraps}) == 3
    assert [machine.native_id for machine in made] == [f"i-{machine.id}" for machine in made]
    assert await effects(harness) == []


async def test_machines_are_known_by_their_names_in_whatever_order_the_provider_lists_them(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    cluster.backwards = True
    await submit(harness)
    await harness.performer.perform_due()
    made = await machines(harness)
    assert [machine.native_id for machine in made] == [f"i-{machine.id}" for machine in made]
    assert await effects(harness) == []


async def test_a_machine_that_was_not_ordered_is_not_taken_for_one_that_was(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    await submit(harness)
    second = (await machines(harness))[1].id
    cluster.add(STRANGER)
    cluster.add(second)
    cluster.made[second].ref = cluster.made[STRANGER].ref
    await harness.performer.perform_due()
    assert [machine.launch_settled for machine in await machines(harness)] == [False] * 3
    assert await effects(harness) == ["launch"]


async def test_where_one_call_cannot_there_is_one_for_each(harness: ControlHarness) -> None:
    cloud = harness.backends["cloud"]
    await submit(harness, "cloud")
    assert await effects(harness) == ["launch"] * 3
    await harness.performer.perform_due()
    made = await machines(harness)
    assert {machine.gang for machine in made} == {None}
    assert sorted(call.token for call in cloud.launches) == [machine.id for machine in made]
    assert [(order.rank, order.ranks, order.others) for order in cloud.orders] == [(n, 3, ()) for n in range(3)]


async def test_a_partial_answer_is_asked_for_again(harness: ControlHarness, cluster: FakeQueue) -> None:
    cluster.partial = 2
    await submit(harness)
    await harness.performer.perform_due()
    assert [machine.native_id for machine in await machines(harness)] == [None, None, None]
    harness.clock.move(2.0)
    await harness.performer.perform_due()
    assert all(machine.native_id for machine in await machines(harness))
    assert len({call.token for call in cluster.launches}) == 1


async def test_all_of_a_lost_answer_are_found(harness: ControlHarness, cluster: FakeQueue) -> None:
    cluster.answers = [TimedOut("No answer."), "ok"]
    await submit(harness)
    made = [machine.id for machine in await machines(harness)]
    await harness.performer.perform_due()
    for name in made:
        cluster.add(name)
    harness.clock.move(2.0)
    await harness.performer.perform_due()
    assert [machine.native_id for machine in await machines(harness)] == [f"i-{name}" for name in made]
    assert len(cluster.launches) == 1


async def test_a_refusal_is_of_all_and_counted_once(harness: ControlHarness, cluster: FakeQueue) -> None:
    cluster.answers = ["refused"]
    job = await submit(harness)
    await harness.performer.perform_due()
    assert {machine.state for machine in await machines(harness)} == {MachineState.GONE}
    await harness.reconciler.round()
    world = await harness.world(job)
    assert world.attempts[0].reason is Reason.REFUSED
    assert list(world.job.used.values()) == [1]


async def test_a_gang_that_is_cancelled_before_its_launch_makes_nothing(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    await submit(harness)
    (first, second, _) = await machines(harness)
    await harness.change_machine(second.id, f.Unwanted("a person ended it"))
    for _ in range(6):
        await harness.performer.perform_due()
        harness.clock.move(40.0)
        await harness.reconciler.round()
    assert first.id not in {call.token for call in cluster.launches}, "its job was placed again since"
    assert {machine.state for machine in (await machines(harness))[:3]} == {MachineState.GONE}


async def test_what_a_server_made_that_died_before_it_recorded_it_is_released_with_the_gang(
    harness: ControlHarness, cluster: FakeQueue
) -> None:
    job = await submit(harness)
    made = [machine.id for machine in await machines(harness)]
    harness.calls.hanging.add("cluster")
    await harness.performer.perform_due()
    harness.calls.hanging.clear()
    assert sorted(cluster.made) == made
    await harness.change_machine(made[1], f.Unwanted("a person ended it"))
    twin = await other_worker(harness, "w2")
    for _ in range(12):
        await twin.performer.perform_due()
        await twin.poller.poll()
        harness.clock.move(60.0)
        await harness.reconciler.round()
    assert [cluster.made[name].seen for name in made] == [Seen.GONE] * 3
    assert (await harness.world(job)).attempts[0].reason is not None


async def test_ranks_run_on_their_machines_and_end_together(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await submit(harness, nodes=2)
    await harness.performer.perform_due()
    attempt = await harness.attempt(job)
    runners = [FakeRunner(harness.agents, attempt.id, rank) for rank in range(2)]
    for machine in await machines(harness):
        await harness.host_speaks(machine.id, f"i-{machine.id}")
    for runner in runners:
        await runner.say(MessageKind.STARTED, pid=7)
    await runners[1].end()
    assert (await harness.world(job)).job.state is JobState.RUNNING
    await runners[0].end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


async def test_a_rank_that_fails_tells_the_other_to_stop(harness: ControlHarness, cluster: FakeQueue) -> None:
    job = await submit(harness, nodes=2)
    await harness.performer.perform_due()
    attempt = await harness.attempt(job)
    for machine in await machines(harness):
        await harness.host_speaks(machine.id, f"i-{machine.id}")
    await FakeRunner(harness.agents, attempt.id, 1).end(code=3)
    wanted = await harness.agents.read_attempt_desired(attempt.id)
    assert wanted.stop
    await FakeRunner(harness.agents, attempt.id, 0).send(
        [
            FakeRunner(harness.agents, attempt.id).message(MessageKind.EXITED, code=None, signal=15, cause="stopped"),
        ]
    )
    world = await harness.world(job)
    assert (world.attempts[0].reason, world.attempts[0].exit_code) == (Reason.EXIT_CODE, 3)
