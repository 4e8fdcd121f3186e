"""A simulated receiver of notifications, which may be down or late, and whose response may be lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextvars import Context

from crucible.core.errors import NotAllowed
from crucible.core.hooks import Reply
from crucible.core.secret import Secret
from crucible.core.signing import verify_message
from crucible.simulation.faults.checks.notifications import Notification, NotificationCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.virtual_loop import virtual_loop
from crucible.simulation.faults.world.ports import START

SECONDS = 10.0
"""The sender's timeout."""
STORM = "receiver"


class WebhookReceiver:
    """The `Post` port of a simulated deployment. It passes messages to `notifications`. Each URL has its own secret."""

    def __init__(self, faults: FaultRates, rng: RandomStream, notifications: NotificationCheck) -> None:
        self._faults = faults
        self._rng = rng
        self._notifications = notifications
        self._secrets: dict[str, Secret] = {}

    def open(self, url: str, secret: Secret) -> None:
        """Listen at a URL, with its secret."""
        self._secrets[url] = secret

    def now(self) -> float:
        return START + virtual_loop().time()

    async def check(self, url: str) -> None:
        """Accept every URL."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send a message. It arrives even if its sender dies meanwhile."""
        if self._faults.strikes("notice.lost"):
            return Reply(None, "It cannot be connected to.")
        answer: asyncio.Future[Reply] = virtual_loop().create_future()
        slow = self._faults.strikes("call.slow")
        away = self._rng.uniform(1.0, 2 * SECONDS) if slow else self._rng.uniform(0.01, 0.4)
        virtual_loop().call_later(away, self._arrive, url, body, dict(headers), answer, context=Context())
        try:
            async with asyncio.timeout(SECONDS):
                return await answer
        except TimeoutError:
            return Reply(None, f"It did not answer within {SECONDS:g} s.")

    def _arrive(self, url: str, body: bytes, headers: Mapping[str, str], answer: asyncio.Future[Reply]) -> None:
        if self._faults.storming(STORM):
            return _give(answer, Reply(503, "not now", self._rng.choose((None, 20.0))))
        try:
            verify_message(self._secrets[url], headers, body, self.now())
        except NotAllowed as error:
            return self._notifications.report_unsigned(url, error.why)
        data = json.loads(body)["data"]
        event, job = data["event"], data["job"]["id"]
        self._notifications.record(Notification(url, job, event["n"], event["type"]))
        if not self._faults.strikes("answer.lost"):
            _give(answer, Reply(200, "thanks"))


def _give(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():
        answer.set_result(reply)
