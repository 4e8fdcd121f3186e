"""The queues: which jobs wait together, whose turn it is, and what a priority changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from tests.control.harness import ControlHarness, job_spec

from crucible.control.jobs import queries
from crucible.control.people import projects
from crucible.control.scheduling.queue import backends_of_queue, first_in_queue, list_queues, queue_name
from crucible.control.scheduling.state_reader import MAX_CONSIDERED
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER, Identity, LoginMethod, Role

ADA = Identity("usr-1", "ada", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER, "vision": Role.MEMBER})
BOB = Identity("usr-2", "bob", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER})


async def full(harness: ControlHarness) -> str:
    """This computer, taken by a job of another user."""
    harness.services.backend_access._shared_computer = True
    return await harness.submit(cpus=4)


async def submit(harness: ControlHarness, who: Identity, priority: int = 0, **more: Any) -> str:
    spec = job_spec(cpus=4, priority=priority, **more)
    return (await harness.writer.write(lambda unit: harness.submitter.store(unit, spec, None, who))).job


async def turns(harness: ControlHarness, most: int = MAX_CONSIDERED) -> list[str]:
    found = await harness.read(lambda conn: first_in_queue(conn, "local", most))
    return found


async def test_a_users_jobs_take_turns_by_priority_in_that_users_positions(harness: ControlHarness) -> None:
    await full(harness)
    late, other = await submit(harness, ADA), await submit(harness, BOB, 500)
    soon, first = await submit(harness, ADA, 1), await submit(harness, ADA, 2)
    assert await turns(harness) == [first, other, soon, late]


async def test_a_users_jobs_take_turns_whatever_project_they_are_in(harness: ControlHarness) -> None:
    await harness.ports.db.write(lambda conn: projects.add(conn, "vision", "", harness.clock.now()))
    await full(harness)
    late, other, best = (
        await submit(harness, ADA),
        await submit(harness, BOB, 9),
        await submit(harness, ADA, 2, project="vision"),
    )
    assert await turns(harness) == [best, other, late]
    assert await turns(harness, most=1) == [best]


async def test_a_priority_counts_from_behind_the_beginning_of_the_queue(harness: ControlHarness) -> None:
    await full(harness)
    plain = [await submit(harness, ADA) for _ in range(3)]
    urgent = await submit(harness, ADA, 1)
    assert await turns(harness, most=2) == [urgent, plain[0]]


async def test_what_has_less_than_no_priority_lets_later_ones_go_first(harness: ControlHarness) -> None:
    await full(harness)
    low = [await submit(harness, ADA, priority) for priority in (-2, -1)]
    plain = [await submit(harness, ADA) for _ in range(2)]
    assert await turns(harness, most=2) == plain
    assert await turns(harness) == [*plain, *reversed(low)]


async def test_the_best_is_placed_first_and_the_others_say_how_many_are_ahead(harness: ControlHarness) -> None:
    running = await full(harness)
    late, other, urgent = await submit(harness, ADA), await submit(harness, BOB), await submit(harness, ADA, 3)
    await harness.host_up()

    async def waiting(job: str) -> object:
        return (await harness.read(lambda conn: queries.read_job(conn, job, harness.clock.now()))).waiting

    assert [await waiting(job) for job in (other, late)] == [
        "behind 1 other job in the queue",
        "behind 2 other jobs in the queue",
    ]
    await (await harness.runner(running)).end()
    assert [(await harness.world(job)).job.state.value for job in (late, other, urgent)] == [
        "queued",
        "queued",
        "starting",
    ]


@pytest.mark.parametrize("priority", [0, 7])
async def test_a_job_tells_of_a_priority_that_it_was_given(harness: ControlHarness, priority: int) -> None:
    job = await submit(harness, OWNER, priority)
    world = await harness.world(job)
    view = await harness.read(lambda conn: queries.read_job(conn, job, harness.clock.now()))
    assert view.priority == priority
    assert ("priority" in view.as_json(), "priority" in world.job.spec.model_dump()) == (bool(priority), bool(priority))


async def test_jobs_with_the_same_backends_wait_in_one_queue(two_backends: ControlHarness) -> None:
    for name in ("local", "ssh"):
        await two_backends.submit(cpus=4, backend=name)
    for backends in (("local", "ssh"), ("ssh", "local"), ("ssh",)):
        await two_backends.submit(cpus=4, backend=backends[0], fallback=backends[1:])
    assert await two_backends.read(list_queues) == ["local,ssh", "ssh"]
    assert [backends_of_queue(name) for name in ("local,ssh", "ssh")] == [["local", "ssh"], ["ssh"]]
    assert queue_name(["ssh", "local", "ssh"]) == "local,ssh"


async def test_a_job_that_is_not_ready_yet_has_no_turn(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 30})
    await runner.end(code=1)
    now = harness.clock.now()

    def ready(at: float) -> Callable[[Connection], list[str]]:
        return lambda conn: first_in_queue(conn, "local", 1, at)

    assert [await harness.read(ready(at)) for at in (now, now + 30)] == [[], [job]]
    assert await turns(harness) == [job], "without a time everyone counts"


async def test_a_user_with_jobs_in_several_queues_orders_them_all(two_backends: ControlHarness) -> None:
    harness = two_backends
    first = await full(harness)
    there = await harness.submit(cpus=4, backend="ssh")
    late = await submit(harness, ADA, fallback=("ssh",))
    soon = await submit(harness, ADA, 1)
    await harness.host_up()
    await (await harness.runner(first)).end()
    assert (await harness.attempt(soon)).backend == "local"
    await (await harness.runner(there)).end()
    assert (await harness.attempt(late)).backend == "ssh"
