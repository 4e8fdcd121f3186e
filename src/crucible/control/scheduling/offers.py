"""A cache of the offers of the connected backends, which are fetched outside any transaction.

There is one request for each backend and need. While a backend does not answer, its last answer stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from crucible.backends.base import Backend
from crucible.control.reconcile.unit_of_work import SCHEDULER
from crucible.control.runtime.ports import Calls, Clock, Wakeups
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.compute.offers import Need, Nodes, Offer
from crucible.core.errors import CrucibleError

log = structlog.get_logger(__name__)

OFFERS_DEADLINE = 20.0
USED_SECONDS = 600.0
"""How long after its last use a need is refreshed."""
MAX_NEEDS = 200
"""Maximum number of needs that are refreshed for each backend: those used last."""

ANY = Need()


@dataclass
class _Answer:
    """`offers`: None before the first answer. `failed`: the last request got no answer."""

    used_at: float
    offers: tuple[Offer, ...] | None = None
    failed: bool = False


class OfferBook:
    """The offers of each backend, by need. The methods that fetch call the backends; the others read from memory."""

    def __init__(self, backends: ConnectedBackends, calls: Calls, clock: Clock, wakeups: Wakeups) -> None:
        self._backends = backends
        self._calls = calls
        self._clock = clock
        self._wakeups = wakeups
        self._answers: dict[tuple[str, Need], _Answer] = {}
        self._requests: dict[tuple[str, Need], asyncio.Task[None]] = {}

    def forget(self, name: str) -> None:
        """Drop the offers of a backend that was disconnected or got other settings."""
        for key in [key for key in self._answers if key[0] == name]:
            self._answers.pop(key, None)
        for key in [key for key in self._requests if key[0] == name]:
            self._requests.pop(key).cancel()

    async def refresh(self) -> None:
        """Fetch again, concurrently, what was used lately. A request that is under way is not repeated."""
        self._forget_unused()
        general = [(name, ANY) for name in self._backends.names()]
        used = [key for key in self._answers if key[1] != ANY]
        await asyncio.gather(*(self._request(name, need) for name, need in (*general, *used)))

    async def fetch(self, wanted: Iterable[tuple[str, Need]], seconds: float) -> None:
        """Fetch the offers that are not known yet, and wait for them for at most `seconds`."""
        missing = [self._request(name, need) for name, need in wanted if self.get(name, need) is None]
        if missing:
            await asyncio.wait(missing, timeout=seconds)

    def fetch_in_background(self, wanted: Iterable[tuple[str, Need]]) -> None:
        """Fetch the offers that are not known yet. Their arrival wakes the scheduler."""
        for name, need in wanted:
            if self.get(name, need) is None:
                self._request(name, need)

    async def stop(self) -> None:
        """Cancel the requests that are under way."""
        tasks = tuple(self._requests.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def get(self, name: str, need: Need = ANY) -> tuple[Offer, ...] | None:
        """Return the backend's offers for the need; None if it has never answered."""
        answer = self._answers.get(self._key(name, need))
        if answer is None:
            return None
        answer.used_at = self._clock.steady()
        return answer.offers

    def nodes(self, name: str) -> list[str]:
        """Return the ids of the nodes whose slots the backend offers."""
        return [offer.node.id for offer in self.get(name) or () if offer.node is not None]

    def by_need(self, name: str) -> Mapping[Need, tuple[Offer, ...]]:
        """Return all known offers of the backend, by need."""
        return {
            need: answer.offers
            for (backend, need), answer in self._answers.items()
            if backend == name and answer.offers is not None
        }

    def unanswered(self, name: str) -> frozenset[Need]:
        """Return the needs for which the last request got no answer."""
        found = (need for (backend, need), answer in self._answers.items() if backend == name and answer.failed)
        return frozenset(found)

    def _key(self, name: str, need: Need) -> tuple[str, Need]:
        """Return the key of the cached answer. A backend with nodes has one answer for all needs."""
        backend = self._backends.all().get(name)
        nodes = backend is not None and isinstance(backend.capabilities.capacity, Nodes)
        return name, ANY if nodes else need

    def _request(self, name: str, need: Need) -> asyncio.Task[None]:
        key = self._key(name, need)
        task = self._requests.get(key)
        if task is None:
            task = self._requests[key] = asyncio.create_task(self._fetch(*key))
            task.add_done_callback(lambda done: self._drop_task(key, done))
        return task

    def _drop_task(self, key: tuple[str, Need], done: asyncio.Task[None]) -> None:
        if self._requests.get(key) is done:
            del self._requests[key]

    async def _fetch(self, name: str, need: Need) -> None:
        if not self._backends.has(name):
            return
        backend = self._backends.get(name)
        try:
            offers = await self._calls.run(name, lambda: self._read(backend, need), OFFERS_DEADLINE)
        except CrucibleError as error:
            log.warning("fetching offers failed", backend=name, error=str(error))
            self._record(name, need, None)
        else:
            self._record(name, need, offers)

    def _record(self, name: str, need: Need, offers: tuple[Offer, ...] | None) -> None:
        """Record the answer, or that there was none, and wake the scheduler if that is news."""
        known = self._answers.setdefault((name, need), _Answer(self._clock.steady()))
        before = known.failed, _undated(known.offers or ())
        known.failed = offers is None
        known.offers = known.offers if offers is None else offers
        if before != (known.failed, _undated(known.offers or ())):
            self._wakeups.wake(SCHEDULER)

    def _read(self, backend: Backend, need: Need) -> tuple[Offer, ...]:
        """Return the backend's offers, none of them runnable if its agents cannot reach this server."""
        self._backends.probe(backend)
        offers, rejected = backend.offers(need), self._backends.rejection(backend.name, secrets=False)
        if rejected is None:
            return tuple(offers)
        return tuple(replace(offer, why_not=offer.why_not or str(rejected)) for offer in offers)

    def _forget_unused(self) -> None:
        now = self._clock.steady()
        for name in {key[0] for key in self._answers}:
            keys = sorted(
                (key for key in self._answers if key[0] == name and key[1] != ANY),
                key=lambda key: self._answers[key].used_at,
                reverse=True,
            )
            for n, key in enumerate(keys):
                if n >= MAX_NEEDS or now - self._answers[key].used_at > USED_SECONDS or not self._backends.has(name):
                    del self._answers[key]


def _undated(offers: Iterable[Offer]) -> list[Offer]:
    return [replace(offer, dated="") for offer in offers]
