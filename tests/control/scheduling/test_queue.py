"""The queue of a backend: whose turn it is, and what a priority changes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.world import Rig, job_spec

from crucible.control.jobs import queries
from crucible.control.people import projects
from crucible.control.scheduling.queue import first_in_queue
from crucible.control.scheduling.scheduler import MAX_CONSIDERED
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER, Identity, LoginMethod, Role

ADA = Identity("usr-1", "ada", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER, "vision": Role.MEMBER})
BOB = Identity("usr-2", "bob", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER})


async def full(rig: Rig) -> str:
    """This computer, taken by a job of another user."""
    rig.submitter._shared_computer = True
    return await rig.submit(cpus=4)


async def submit(rig: Rig, who: Identity, priority: int = 0, **more: Any) -> str:
    spec = job_spec(cpus=4, priority=priority, **more)
    return (await rig.writer.write(lambda unit: rig.submitter.store(unit, spec, None, who))).job


async def turns(rig: Rig, most: int = MAX_CONSIDERED) -> list[str]:
    found = await rig.read(lambda conn: first_in_queue(conn, "local", most))
    return [queued.job for queued in found]


async def test_a_users_jobs_take_turns_by_priority_in_that_users_positions(rig: Rig) -> None:
    await full(rig)
    late, other = await submit(rig, ADA), await submit(rig, BOB, 500)
    soon, first = await submit(rig, ADA, 1), await submit(rig, ADA, 2)
    assert await turns(rig) == [first, other, soon, late]


async def test_a_users_jobs_take_turns_whatever_project_they_are_in(rig: Rig) -> None:
    await rig.ports.db.write(lambda conn: projects.add(conn, "vision", "", rig.clock.now()))
    await full(rig)
    late, other, best = await submit(rig, ADA), await submit(rig, BOB, 9), await submit(rig, ADA, 2, project="vision")
    assert await turns(rig) == [best, other, late]
    assert await turns(rig, most=1) == [best]


async def test_a_priority_counts_from_behind_the_beginning_of_the_queue(rig: Rig) -> None:
    await full(rig)
    plain = [await submit(rig, ADA) for _ in range(3)]
    urgent = await submit(rig, ADA, 1)
    assert await turns(rig, most=2) == [urgent, plain[0]]


async def test_what_has_less_than_no_priority_lets_later_ones_go_first(rig: Rig) -> None:
    await full(rig)
    low = [await submit(rig, ADA, priority) for priority in (-2, -1)]
    plain = [await submit(rig, ADA) for _ in range(2)]
    assert await turns(rig, most=2) == plain
    assert await turns(rig) == [*plain, *reversed(low)]


async def test_the_best_is_placed_first_and_the_others_say_how_many_are_ahead(rig: Rig) -> None:
    running = await full(rig)
    late, other, urgent = await submit(rig, ADA), await submit(rig, BOB), await submit(rig, ADA, 3)
    await rig.host_up()

    async def waiting(job: str) -> object:
        return (await rig.read(lambda conn: queries.read_job(conn, job, rig.clock.now()))).waiting

    assert [await waiting(job) for job in (other, late)] == [
        "behind 1 other job in the queue",
        "behind 2 other jobs in the queue",
    ]
    await (await rig.runner(running)).end()
    assert [(await rig.world(job)).job.state.value for job in (late, other, urgent)] == ["queued", "queued", "starting"]


@pytest.mark.parametrize("priority", [0, 7])
async def test_a_job_tells_of_a_priority_that_it_was_given(rig: Rig, priority: int) -> None:
    job = await submit(rig, OWNER, priority)
    world = await rig.world(job)
    view = await rig.read(lambda conn: queries.read_job(conn, job, rig.clock.now()))
    assert view.priority == priority
    assert ("priority" in view.as_json(), "priority" in world.job.spec.model_dump()) == (bool(priority), bool(priority))
