"""A user's queued jobs are limited, whatever way they come."""

from __future__ import annotations

import pytest
from tests.control.harness import ControlHarness, job_spec

from crucible.control.db import schema as t
from crucible.control.jobs.queue_limit import QueueFull, QueueLimit
from crucible.control.jobs.submit import StoredJob
from crucible.core.job.states import JobState, Status, states_of
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER, Identity, LoginMethod, Role

ADA = Identity("usr-1", "ada", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER})
BOB = Identity("usr-2", "bob", LoginMethod.TOKEN, roles={DEFAULT_PROJECT: Role.MEMBER})
SPEC = job_spec(cpus=4)


@pytest.fixture
async def busy(harness: ControlHarness) -> ControlHarness:
    """This computer, taken by a job of the owner; three jobs of a user may be queued."""
    harness.services.backend_access._shared_computer = True
    harness.submitter.queue_limit = QueueLimit(3)
    await harness.submit(cpus=4)
    return harness


async def submit(harness: ControlHarness, who: Identity, key: str | None = None) -> str:
    return (await harness.writer.write(lambda unit: harness.submitter.store(unit, SPEC, key, who))).job


async def test_a_user_with_too_many_queued_jobs_is_refused_and_others_are_not(busy: ControlHarness) -> None:
    for number in range(3):
        await submit(busy, ADA, f"key-{number}")
    with pytest.raises(QueueFull) as caught:
        await submit(busy, ADA)
    assert (caught.value.http_status, caught.value.data) == (409, {"limit": 3, "queued": 3})
    assert "queued_limit" in caught.value.fix
    assert "ended" in caught.value.fix
    await submit(busy, BOB)
    assert await submit(busy, ADA, "key-0"), "a repeated request gets its job"
    for _ in range(5):
        await submit(busy, OWNER)


async def test_jobs_that_ended_or_run_make_room(busy: ControlHarness) -> None:
    first, *_ = [await submit(busy, ADA) for _ in range(3)]
    await busy.services.bulk.cancel([first])
    assert (await busy.world(first)).job.state is JobState.CANCELLED
    await submit(busy, ADA)
    with pytest.raises(QueueFull):
        await submit(busy, ADA)


async def test_a_batch_that_does_not_fit_is_refused_as_a_whole(busy: ControlHarness) -> None:
    await submit(busy, ADA, "key-0")
    with pytest.raises(QueueFull, match="has 1 queued jobs, and may have 3: these 3 do not fit") as caught:
        await busy.services.bulk.submit([(SPEC, None), (SPEC, "a"), (SPEC, "a"), (SPEC, "b"), (SPEC, "key-0")], ADA)
    assert caught.value.data == {"limit": 3, "queued": 1}
    assert await busy.count(t.jobs) == 2
    done = await busy.services.bulk.submit([(SPEC, None), (SPEC, "a"), (SPEC, "a"), (SPEC, "key-0")], ADA)
    assert [isinstance(one, StoredJob) and one.created for one in done] == [True, True, False, False]
    assert await busy.services.bulk.submit([(SPEC, "a"), (SPEC, "key-0")], ADA), "repeated, it needs no room"


async def test_reruns_and_resumes_count(busy: ControlHarness) -> None:
    ended = await submit(busy, ADA)
    await busy.services.bulk.cancel([ended])
    for _ in range(3):
        await submit(busy, ADA)
    with pytest.raises(QueueFull):
        await busy.services.resumer.rerun(ended, None, ADA)
    with pytest.raises(QueueFull):
        await busy.services.resumer.resume(ended, None, None, ADA)
    with pytest.raises(QueueFull):
        await busy.services.resumer.resume(ended, None, None, BOB)
    await busy.services.resumer.rerun(ended, None, BOB)


def test_the_condition_names_the_states_that_are_shown_as_queued() -> None:
    assert all(f"'{state}'" in str(t.WAITING) for state in states_of(Status.QUEUED))
    assert str(t.WAITING).count("'") == 2 * len(states_of(Status.QUEUED))
