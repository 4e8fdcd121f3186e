from __future__ import annotations

import hashlib
import json

import pytest
from tests.simulation.books import Books

from crucible.simulation.faults.checks.event_order import EventOrderCheck, InvariantBroken

DATA = b"one line\n"
SHA = hashlib.sha256(DATA).hexdigest()


def tell(books: Books, *events: tuple[str, dict[str, object]]) -> EventOrderCheck:
    for n, (kind, data) in enumerate(events, start=1):
        books.put("events", job="job-1", n=n, type=kind, data=json.dumps(data))
    return EventOrderCheck(books.db, books.truth)


def test_a_try_after_a_cancel_is_told(books: Books) -> None:
    books.put("attempts", id="att-1", job="job-1", number=1)
    story = tell(books, ("cancel_requested", {}), ("placed", {"attempt": 1}))
    with pytest.raises(InvariantBroken, match="placed after cancel_requested"):
        story.check("job-1")


def test_a_cancel_that_nobody_asked_for_is_told(books: Books) -> None:
    with pytest.raises(InvariantBroken, match="nobody asked"):
        tell(books, ("submitted", {}), ("cancelled", {})).check("job-1")


def test_a_try_that_does_not_begin_at_the_newest_checkpoint_is_told(books: Books) -> None:
    for n in (1, 2):
        books.put("attempts", id=f"att-{n}", job="job-1", number=n)
    books.truth.began = {("att-1", 0): [0], ("att-2", 0): [5]}
    saved = [("checkpoint", {"attempt": 1, "step": step}) for step in (5, 10)]
    story = tell(books, ("placed", {"attempt": 1}), *saved, ("placed", {"attempt": 2}))
    with pytest.raises(InvariantBroken, match="began at step 5, its newest checkpoint was at 10"):
        story.check("job-1")
    books.truth.began["att-2", 0] = [10]
    story.check("job-1")


@pytest.mark.parametrize("after", ["stopped", "withdrawn"])
def test_a_job_that_pays_for_an_attempt_that_we_ended_is_told(books: Books, after: str) -> None:
    story = tell(books, ("retrying", {"after": after, "try": 1, "wait_seconds": 0.0}))
    story.check("job-1")
    books.put(
        "events", job="job-1", n=2, type="retrying", data=json.dumps({"after": after, "try": 2, "wait_seconds": 0})
    )
    with pytest.raises(InvariantBroken, match=f"was charged for an attempt that we ended: {after}"):
        story.check("job-1")


def test_a_job_that_ends_with_an_attempt_that_we_stopped_is_told(books: Books) -> None:
    with pytest.raises(InvariantBroken, match="is failed because we ended its attempt: stopped"):
        tell(books, ("failed", {"reason": "stopped"})).check("job-1")


def test_an_attempt_that_is_counted_twice_is_reported(books: Books) -> None:
    retrying = {"after": "machine_lost", "wait_seconds": 2.0}
    other = {"after": "interrupted", "wait_seconds": 2.0}
    counted = [
        ("retrying", {**retrying, "try": 1}),
        ("retrying", {**other, "try": 1}),
        ("retrying", {**retrying, "try": 2}),
    ]
    tell(books, *counted).check("job-1")
    books.put("events", job="job-1", n=4, type="retrying", data=json.dumps({**other, "try": 3}))
    with pytest.raises(InvariantBroken, match="job-1 was charged for 3 retries after 1: interrupted"):
        EventOrderCheck(books.db, books.truth).check("job-1")


def test_the_retries_of_a_reopened_job_are_counted_anew(books: Books) -> None:
    again = ("retrying", {"after": "interrupted", "wait_seconds": 2.0, "try": 1})
    tell(books, again, ("reopened", {}), again).check("job-1")
