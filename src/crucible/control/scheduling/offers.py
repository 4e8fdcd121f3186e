"""The offers of the connected backends, asked for outside any transaction and kept for a while.

A backend is asked once for each distinct need. What it said last stays while it does not answer.
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
"""How long after its last use the answer to a need is kept up to date."""
MAX_NEEDS = 200
"""Needs that are kept up to date for each backend; of more, those used last."""

ANY = Need()


@dataclass
class _Answer:
    """`offers`: None before the first answer. `failed`: whether the last question got none."""

    used_at: float
    offers: tuple[Offer, ...] | None = None
    failed: bool = False


class OfferBook:
    """What each backend offers, by need. `refresh` and `ask` call the backends; the rest is read from memory."""

    def __init__(self, backends: ConnectedBackends, calls: Calls, clock: Clock, wakeups: Wakeups) -> None:
        self._backends = backends
        self._calls = calls
        self._clock = clock
        self._wakeups = wakeups
        self._answers: dict[tuple[str, Need], _Answer] = {}
        self._asking: dict[tuple[str, Need], asyncio.Task[None]] = {}

    def forget(self, name: str) -> None:
        """Forget what a backend offered that was disconnected, or has other settings now."""
        for key in [key for key in self._answers if key[0] == name]:
            self._answers.pop(key, None)
        for key in [key for key in self._asking if key[0] == name]:
            self._asking.pop(key).cancel()

    async def refresh(self) -> None:
        """Ask all backends again for what was used lately, concurrently. What is being asked is not asked twice."""
        self._forget_unused()
        general = [(name, ANY) for name in self._backends.names()]
        used = [key for key in self._answers if key[1] != ANY]
        await asyncio.gather(*(self._request(name, need) for name, need in (*general, *used)))

    async def ask(self, wanted: Iterable[tuple[str, Need]], seconds: float) -> None:
        """Wait until these backends have answered these needs once, for at most so many seconds."""
        missing = [self._request(name, need) for name, need in wanted if self.of(name, need) is None]
        if missing:
            await asyncio.wait(missing, timeout=seconds)

    def request(self, wanted: Iterable[tuple[str, Need]]) -> None:
        """Ask, in the background, for what no answer is known yet. The scheduler is woken by the answers."""
        for name, need in wanted:
            if self.of(name, need) is None:
                self._request(name, need)

    async def stop(self) -> None:
        """Cancel what is being asked."""
        tasks = tuple(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of(self, name: str, need: Need = ANY) -> tuple[Offer, ...] | None:
        """Return the backend's offers for the need; None if it has never answered."""
        answer = self._answers.get(self._key(name, need))
        if answer is None:
            return None
        answer.used_at = self._clock.steady()
        return answer.offers

    def known(self, name: str) -> Mapping[Need, tuple[Offer, ...]]:
        """Return all that is known of the backend's offers, by need."""
        return {
            need: answer.offers
            for (backend, need), answer in self._answers.items()
            if backend == name and answer.offers is not None
        }

    def silent(self, name: str) -> frozenset[Need]:
        """Return the needs for which the backend did not answer when it was asked last."""
        found = (need for (backend, need), answer in self._answers.items() if backend == name and answer.failed)
        return frozenset(found)

    def _key(self, name: str, need: Need) -> tuple[str, Need]:
        """Return under what the answer is kept: nodes are the same whatever is needed."""
        backend = self._backends.all().get(name)
        nodes = backend is not None and isinstance(backend.capabilities.capacity, Nodes)
        return name, ANY if nodes else need

    def _request(self, name: str, need: Need) -> asyncio.Task[None]:
        key = self._key(name, need)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(*key))
            task.add_done_callback(lambda done: self._drop_task(key, done))
        return task

    def _drop_task(self, key: tuple[str, Need], done: asyncio.Task[None]) -> None:
        if self._asking.get(key) is done:
            del self._asking[key]

    async def _ask(self, name: str, need: Need) -> None:
        if not self._backends.has(name):
            return
        backend = self._backends.get(name)
        try:
            offers = await self._calls.run(name, lambda: self._read(backend, need), OFFERS_DEADLINE)
        except CrucibleError as error:
            log.warning("asking for offers failed", backend=name, error=str(error))
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
