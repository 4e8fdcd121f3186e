"""Places: the backends of this deployment and what each offers now, kept fresh beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from crucible.backends.base import Backend
from crucible.control.ports import Calls
from crucible.core.errors import CrucibleError, NoCapacity, UnknownName
from crucible.core.offers import Offer
from crucible.core.resources import Resources
from crucible.core.scheduling import why_never
from crucible.core.spec import JobSpec
from crucible.core.tiers import effective

log = structlog.get_logger(__name__)

DEFAULT = "local"
OFFERS_DEADLINE = 20.0


@dataclass(frozen=True)
class Place:
    backend: Backend
    offer: Offer


class Places:
    """The connected backends. `refresh` asks each for its offers; everything else is answered from memory."""

    def __init__(self, backends: Mapping[str, Backend], calls: Calls) -> None:
        self._backends = backends
        self._calls = calls
        self._offers: dict[str, tuple[Offer, ...]] = {}

    async def refresh(self) -> None:
        """Asks all places at once; one that does not answer keeps the offers it last made."""
        await asyncio.gather(*map(self._refresh, self._backends.values()))

    async def _refresh(self, backend: Backend) -> None:
        try:
            found = await self._calls.run(backend.name, lambda: backend.offers(Resources()), OFFERS_DEADLINE)
        except CrucibleError as error:
            log.warning("asking for offers failed", backend=backend.name, error=str(error))
            return
        self._offers[backend.name] = tuple(found)

    def names(self) -> list[str]:
        return sorted(self._backends)

    def has(self, name: str) -> bool:
        return name in self._backends

    def backend(self, name: str) -> Backend:
        found = self._backends.get(name)
        if found is None:
            raise UnknownName("backend", name, self._backends, fix="`crucible backends` lists them.")
        return found

    def offers(self, name: str) -> tuple[Offer, ...]:
        return self._offers.get(name, ())

    def place(self, name: str) -> Place | None:
        """The backend with the offer that new machines there are made from; None while it has none."""
        runnable = [offer for offer in self.offers(name) if offer.runnable]
        return Place(self._backends[name], runnable[0]) if runnable else None

    def check(self, spec: JobSpec) -> Resources:
        """The job's size. Raises for an unknown backend or tier, and for more than the place has."""
        backend = self.backend(spec.backend or DEFAULT)
        need = effective(spec.tier, spec.resources)
        if spec.in_place and not backend.capabilities.in_place:
            raise NoCapacity(f"{backend.name} cannot run a job in place.", fix="Leave out --in-place.")
        reasons = [why_never(need, offer.capacity) for offer in self.offers(backend.name)]
        if reasons and all(reasons):
            raise NoCapacity(
                f"No place can hold this job: it {reasons[0]}.",
                fix="Ask for less, choose a smaller --tier, or connect a larger place.",
                rejected=[{"backend": backend.name, "why": why} for why in reasons],
            )
        return need
