from __future__ import annotations

import pytest
from tests.simulation.books import Books

from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.notifications import Notification, NotificationCheck

URL = "https://receiver/1"


def happen(books: Books, *kinds: str) -> None:
    for n, kind in enumerate(kinds, start=1):
        books.put("events", job="job-1", n=n, type=kind, data="{}", cursor=n)


def heard(n: int, kind: str, job: str = "job-1") -> Notification:
    return Notification(URL, job, n, kind)


def test_what_happened_may_be_told_more_than_once(books: Books) -> None:
    happen(books, "completed", "reopened", "failed")
    notices = NotificationCheck(books.db, books.truth)
    for notice in (heard(1, "completed"), heard(3, "failed"), heard(1, "completed")):
        notices.record(notice)
    assert books.broken == []


@pytest.mark.parametrize(
    "notice", [heard(1, "failed"), heard(9, "completed"), heard(1, "completed", "job-2"), heard(2, "reopened")]
)
def test_what_did_not_happen_or_nobody_asked_for_is_told(books: Books, notice: Notification) -> None:
    happen(books, "completed", "reopened")
    NotificationCheck(books.db, books.truth).record(notice)
    assert books.broken == [f"{URL} was told that {notice.job} {notice.kind}, which did not happen"]


def test_what_is_told_after_something_later_is_told(books: Books) -> None:
    happen(books, "completed", "reopened", "failed")
    notices = NotificationCheck(books.db, books.truth)
    notices.record(heard(3, "failed"))
    notices.record(heard(1, "completed"))
    assert books.broken == [f"{URL} was told late that job-1 completed"]


def test_whatever_happens_after_a_hook_was_acknowledged_is_to_be_told(books: Books) -> None:
    notices = NotificationCheck(books.db, books.truth)
    happen(books, "completed")
    notices.record_hook(URL)
    assert notices.missing() == ""
    books.put("events", job="job-1", n=2, type="started", data="{}", cursor=2)
    books.put("events", job="job-1", n=3, type="failed", data="{}", cursor=3)
    assert notices.missing() == f"{URL} was not told that job-1 failed"
    notices.record(heard(3, "failed"))
    assert notices.missing() == ""


def test_what_a_hook_has_passed_and_nobody_heard_is_told(books: Books) -> None:
    notices = NotificationCheck(books.db, books.truth)
    notices.record_hook(URL)
    books.put("hooks", id="hook-1", url=URL, cursor=0)
    books.put("hooks", id="hook-2", url="https://receiver/unanswered", cursor=1)
    happen(books, "completed")
    notices.check()
    books.change("UPDATE hooks SET cursor = 1")
    with pytest.raises(InvariantBroken, match="was not told that job-1 completed, and nobody will"):
        notices.check()
