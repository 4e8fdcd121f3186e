"""The order in which waiting jobs get their turns."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from crucible.core.job.spec import JobSpec
from crucible.core.scheduling.candidates import list_candidates
from crucible.core.scheduling.schedule import order_by_priority
from crucible.core.scheduling.state import WaitingJob


def waiting(user: str, priority: int, job: str = "job", backend: str = "local") -> WaitingJob:
    spec = JobSpec(command=("true",), backend=backend, priority=priority)
    return WaitingJob(job, 0, spec, list_candidates(spec), user)


def ids(jobs: list[WaitingJob]) -> list[str]:
    return [job.id for job in jobs]


def test_without_priorities_it_is_the_order_of_arrival() -> None:
    queue = [waiting("ada", 0, "a1"), waiting("bob", 0, "b1"), waiting("ada", 0, "a2")]
    assert order_by_priority(queue) == queue
    assert order_by_priority([]) == []


def test_a_user_orders_their_own_jobs_and_nobody_elses() -> None:
    queue = [waiting("ada", 0, "a1"), waiting("bob", 9, "b1"), waiting("ada", 5, "a2"), waiting("ada", 5, "a3")]
    assert ids(order_by_priority(queue)) == ["a2", "b1", "a3", "a1"]


def test_less_than_no_priority_lets_ones_own_later_jobs_go_first() -> None:
    queue = [waiting("ada", -1, "a1"), waiting("bob", -9, "b1"), waiting("ada", 0, "a2")]
    assert ids(order_by_priority(queue)) == ["a2", "b1", "a1"]


turns = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)))


def queue_of(given_turns: list[tuple[str, int]]) -> list[WaitingJob]:
    return [waiting(user, priority, f"job-{n:03}") for n, (user, priority) in enumerate(given_turns)]


@given(turns)
def test_turns_stay_with_their_users_and_ties_in_order_of_arrival(given_turns: list[tuple[str, int]]) -> None:
    queue = queue_of(given_turns)
    found = order_by_priority(queue)
    assert [job.user for job in found] == [job.user for job in queue]
    assert sorted(ids(found)) == ids(queue)
    for user in {job.user for job in queue}:
        own = [(-job.spec.priority, job.id) for job in found if job.user == user]
        assert own == sorted(own)


@given(turns.filter(bool), st.integers(0), st.integers(-3, 3))
def test_another_priority_changes_no_turn_of_others(
    given_turns: list[tuple[str, int]], which: int, priority: int
) -> None:
    queue = queue_of(given_turns)
    at = which % len(queue)
    spec = queue[at].spec.model_copy(update={"priority": priority})
    changed = [*queue[:at], replace(queue[at], spec=spec), *queue[at + 1 :]]
    for old, new in zip(order_by_priority(queue), order_by_priority(changed), strict=True):
        assert old == new or old.user == new.user == queue[at].user
