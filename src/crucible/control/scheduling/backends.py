"""Places: the backends of this deployment and what each offers now, kept fresh beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from crucible.backends.base import Backend, Slots
from crucible.control.runtime.ports import Calls
from crucible.control.scheduling.unconnected import why_unconnected
from crucible.core.channels import Rejection
from crucible.core.compute import offer_choice
from crucible.core.compute.budget import RAISE_IT
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import Resources
from crucible.core.compute.scheduling import why_never
from crucible.core.compute.tiers import effective
from crucible.core.errors import CrucibleError, NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.job.spec import JobSpec

if TYPE_CHECKING:
    from crucible.control.storelink import Invitations

log = structlog.get_logger(__name__)

OFFERS_DEADLINE = 20.0
BIGGER = "Ask for less (--tier, --region), or connect a larger place."


@dataclass(frozen=True)
class BackendOffer:
    backend: Backend
    offer: Offer


class ConnectedBackends:
    """The connected backends. `refresh` asks each for its offers; everything else is answered from memory.

    `invitations` knows how their agents talk with us; without it that is no reason to reject an offer.
    """

    def __init__(self, backends: Mapping[str, Backend], calls: Calls, invitations: Invitations | None = None) -> None:
        self._backends = backends
        self._calls = calls
        self._invitations = invitations
        self._offers: dict[str, tuple[Offer, ...]] = {}

    async def refresh(self) -> None:
        """Asks all places at once; one that does not answer keeps the offers it last made."""
        await asyncio.gather(*map(self._refresh, self._backends.values()))

    async def _refresh(self, backend: Backend) -> None:
        try:
            found = await self._calls.run(backend.name, lambda: self._read_offers(backend), OFFERS_DEADLINE)
        except CrucibleError as error:
            log.warning("asking for offers failed", backend=backend.name, error=str(error))
            return
        self._offers[backend.name] = found

    def _read_offers(self, backend: Backend) -> tuple[Offer, ...]:
        """What it offers; nothing that is runnable where its agents could not talk with us."""
        if self._invitations is not None:
            self._invitations.look(backend)
        found, rejected = backend.offers(Resources()), self.rejection(backend.name, secrets=False)
        if rejected is None:
            return tuple(found)
        return tuple(replace(offer, why_not=offer.why_not or str(rejected)) for offer in found)

    def names(self) -> list[str]:
        return sorted(self._backends)

    def has(self, name: str) -> bool:
        return name in self._backends

    def get(self, name: str) -> Backend:
        found = self._backends.get(name)
        if found is None:
            raise UnknownName("backend", name, self._backends, fix=self.how_to_connect(name))
        return found

    def how_to_connect(self, name: str) -> str:
        """For a place that is not connected: the fix of an error."""
        why = why_unconnected(name, self.names())
        return f"{why}." if why else "`crucible backends` lists them."

    def offers(self, name: str) -> tuple[Offer, ...]:
        return self._offers.get(name, ())

    def has_offers_known(self, name: str) -> bool:
        """Whether the place has said what it offers; until then nothing follows from having no offers."""
        return name in self._offers

    def rejection(self, name: str, *, secrets: bool) -> Rejection | None:
        """Why its agents could not talk with us, or not of a job that has secrets; None where they can."""
        if self._invitations is None or not self.has(name):
            return None
        return self._invitations.rejection(self._backends[name], secrets=secrets)

    def may_hold(self, name: str, spec: JobSpec, need: Resources) -> bool:
        """Whether the place is connected and could hold such a job some day."""
        return self.has(name) and not self._why_never(name, spec, need)

    def runnable_offer(self, name: str) -> BackendOffer | None:
        """The backend with the offer that new machines there are made from; None while it has none."""
        runnable = [offer for offer in self.offers(name) if offer.runnable]
        return BackendOffer(self._backends[name], runnable[0]) if runnable else None

    def check(self, spec: JobSpec) -> Resources:
        """The job's size. Raises for an unknown backend or tier, and for more than any of its places has or gives for
        its money.
        """
        need = effective(spec.tier, spec.resources)
        rejected = [self._why_never(name, spec, need) for name in spec.backends]
        if all(rejected):
            reasons = [rejection for found in rejected for rejection in found]
            if spec.max_cost_usd is not None:
                self.check(spec.model_copy(update={"max_cost_usd": None}))
                raise RefusedByPolicy(
                    f"No place can run this job for its max_cost_usd: it {reasons[0]['why']}.",
                    fix=RAISE_IT,
                    rejected=reasons,
                )
            unheard = [self.rejection(name, secrets=bool(spec.secrets)) for name in spec.backends]
            raise NoCapacity(
                f"No place can hold this job: it {reasons[0]['why']}.",
                fix=next((one.fix for one in unheard if one), BIGGER),
                rejected=reasons,
            )
        return need

    def _why_never(self, name: str, spec: JobSpec, need: Resources) -> list[dict[str, str]]:
        """Why this place can never hold the job, an entry for each of its offers; empty when it may."""
        backend = self.get(name)
        if spec.in_place and not backend.capabilities.in_place:
            return [{"backend": name, "why": f"is to run in place, which {name} cannot; leave out --in-place"}]
        unheard = self.rejection(name, secrets=bool(spec.secrets))
        if unheard is not None:
            return [{"backend": name, "why": f"cannot run on {name}: {unheard.why}"}]
        counted = backend.capabilities.slots is Slots.COUNTED
        if counted and spec.regions and len(spec.backends) == 1:
            return [{"backend": name, "why": f"wants {' or '.join(spec.regions)}; {name} is in no region"}]
        sized = spec.model_copy(update={"resources": need})
        reasons = [
            _why_never_counted(sized, offer) if counted else _why_never_elastic(sized, offer)
            for offer in self.offers(name)
        ]
        return [{"backend": name, "why": why} for why in reasons] if reasons and all(reasons) else []


def _why_never_counted(spec: JobSpec, offer: Offer) -> str:
    return offer_choice.wrong_gpu(spec.gpu_types, offer) or why_never(spec.resources, offer.capacity)


def _why_never_elastic(spec: JobSpec, offer: Offer) -> str:
    """Where there is no spot, what cannot be taken back will do."""
    why = offer_choice.why_never(spec, offer)
    if why and spec.market is Market.SPOT:
        return why if offer_choice.why_never(spec.model_copy(update={"market": Market.ON_DEMAND}), offer) else ""
    return why
