from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.simulation.books import Books

from crucible.core.hooks import Reply
from crucible.core.signing import sign_message, signing_secret
from crucible.simulation.faults.checks.notifications import NotificationCheck
from crucible.simulation.faults.fault_rates import RATES, FaultRates, RandomStream
from crucible.simulation.faults.world.webhook_receiver import SECONDS, STORM, WebhookReceiver

URL = "https://receiver/1"
SECRET = signing_secret(b"k" * 32)
BODY = json.dumps({"data": {"event": {"n": 1, "type": "completed"}, "job": {"id": "job-1"}}}).encode()


class Street:
    """A receiver without faults, except those that a test switches on."""

    def __init__(self, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults = FaultRates(RandomStream(1, "weather"), books.loop.time)
        self.notices = NotificationCheck(books.db, books.truth)
        self.receiver = WebhookReceiver(self.faults, RandomStream(1, "receiver"), self.notices)
        self.receiver.open(URL, SECRET)
        self.notices.record_hook(URL)
        books.put("events", job="job-1", n=1, type="completed", data="{}", cursor=1)
        for fault in RATES:
            monkeypatch.setitem(RATES, fault, 0.0)
        self._loop, self._patch = books.loop, monkeypatch

    def always(self, fault: str) -> None:
        self._patch.setitem(RATES, fault, 1.0)

    def play(self, scene: Callable[[], Awaitable[Reply | None]]) -> Reply | None:
        async def played() -> Reply | None:
            return await scene()

        return self._loop.run_until_complete(played())

    async def post(self) -> Reply:
        return await self.receiver.post(URL, BODY, sign_message([SECRET], "msg", BODY, self.receiver.now()))


@pytest.fixture
def street(books: Books, monkeypatch: pytest.MonkeyPatch) -> Street:
    return Street(books, monkeypatch)


def test_what_is_signed_is_taken(street: Street) -> None:
    assert street.play(street.post) == Reply(200, "thanks")
    assert street.notices.missing() == ""


def test_what_others_signed_is_told(street: Street, books: Books) -> None:
    street.receiver.open(URL, signing_secret(b"o" * 32))
    street.play(street.post)
    assert "nobody signed" in books.broken[0]


def test_what_cannot_be_connected_or_comes_in_a_storm_is_not_taken(street: Street) -> None:
    street.faults.storm(STORM, 60.0)
    reply = street.play(street.post)
    assert reply is not None
    assert reply.status == 503
    street.always("notice.lost")
    assert street.play(street.post) == Reply(None, "It cannot be connected to.")
    assert street.notices.missing() != ""


def test_what_was_taken_may_have_no_answer(street: Street) -> None:
    street.always("answer.lost")
    assert street.play(street.post) == Reply(None, f"It did not answer within {SECONDS:g} s.")
    assert street.notices.missing() == ""


def test_what_was_sent_arrives_though_its_sender_has_died(street: Street) -> None:
    async def dies() -> None:
        task = asyncio.ensure_future(street.post())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(2 * SECONDS)

    street.play(dies)
    assert street.notices.missing() == ""
