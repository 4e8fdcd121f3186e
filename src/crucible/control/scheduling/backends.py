"""The connected backends with their current offers, and how to connect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from crucible.backends import registry
from crucible.backends.base import Backend, Slots
from crucible.catalog import PROVIDERS
from crucible.control.runtime.ports import Calls
from crucible.core.channels import Rejection
from crucible.core.compute import offer_choice
from crucible.core.compute.budget import RAISE_IT
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import Resources
from crucible.core.compute.scheduling import why_never
from crucible.core.compute.tiers import effective_resources
from crucible.core.errors import CrucibleError, NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.job.spec import JobSpec

if TYPE_CHECKING:
    from crucible.control.storelink import Invitations

log = structlog.get_logger(__name__)

OFFERS_DEADLINE = 20.0
LARGER_BACKEND = "Ask for less (--tier, --region), or connect a larger backend."


@dataclass(frozen=True)
class BackendOffer:
    """One offer, with the backend that launches its machines."""

    backend: Backend
    offer: Offer


class ConnectedBackends:
    """The connected backends. `refresh` asks each for its offers; everything else is read from memory.

    `invitations` knows how agents reach this server. Without it no offer is rejected because they cannot.
    """

    def __init__(self, backends: Mapping[str, Backend], calls: Calls, invitations: Invitations | None = None) -> None:
        self._backends = backends
        self._calls = calls
        self._invitations = invitations
        self._offers: dict[str, tuple[Offer, ...]] = {}

    async def refresh(self) -> None:
        """Ask all backends for their offers concurrently. One that fails keeps its previous offers."""
        await asyncio.gather(*map(self._refresh, self._backends.values()))

    async def _refresh(self, backend: Backend) -> None:
        try:
            offers = await self._calls.run(backend.name, lambda: self._read_offers(backend), OFFERS_DEADLINE)
        except CrucibleError as error:
            log.warning("asking for offers failed", backend=backend.name, error=str(error))
            return
        self._offers[backend.name] = offers

    def _read_offers(self, backend: Backend) -> tuple[Offer, ...]:
        """Return the backend's offers, none of them runnable if its agents cannot reach this server."""
        if self._invitations is not None:
            self._invitations.probe(backend)
        offers, rejected = backend.offers(Resources()), self.rejection(backend.name, secrets=False)
        if rejected is None:
            return tuple(offers)
        return tuple(replace(offer, why_not=offer.why_not or str(rejected)) for offer in offers)

    def names(self) -> list[str]:
        return sorted(self._backends)

    def has(self, name: str) -> bool:
        return name in self._backends

    def get(self, name: str) -> Backend:
        """Return the backend. Raises UnknownName, which says how to connect it."""
        backend = self._backends.get(name)
        if backend is None:
            raise UnknownName("backend", name, self._backends, fix=self.how_to_connect(name))
        return backend

    def how_to_connect(self, name: str) -> str:
        """Return the fix for an error about a backend that is not connected."""
        why = why_unconnected(name, self.names())
        return f"{why}." if why else "`crucible backends` lists them."

    def offers(self, name: str) -> tuple[Offer, ...]:
        return self._offers.get(name, ())

    def has_answered(self, name: str) -> bool:
        """Return whether the backend has ever reported its offers. Until then, no offers does not mean no capacity."""
        return name in self._offers

    def rejection(self, name: str, *, secrets: bool) -> Rejection | None:
        """Return why agents of this backend cannot reach this server, or None if they can.

        With `secrets`, also why the channel they would use must not carry secrets.
        """
        if self._invitations is None or not self.has(name):
            return None
        return self._invitations.rejection(self._backends[name], secrets=secrets)

    def may_hold(self, name: str, spec: JobSpec, need: Resources) -> bool:
        """Return whether the backend is connected and could ever hold such a job."""
        return self.has(name) and not self._why_never(name, spec, need)

    def runnable_offer(self, name: str) -> BackendOffer | None:
        """Return the first offer of the backend that can be run now, or None."""
        runnable = [offer for offer in self.offers(name) if offer.runnable]
        return BackendOffer(self._backends[name], runnable[0]) if runnable else None

    def check(self, spec: JobSpec) -> Resources:
        """Return the job's effective resources.

        Raises UnknownName for a backend or tier, NoCapacity if none of its backends could ever hold the job, and
        RefusedByPolicy if one could, but not for the job's max_cost_usd.
        """
        need = effective_resources(spec.tier, spec.resources)
        rejected = [self._why_never(name, spec, need) for name in spec.backends]
        if all(rejected):
            reasons = [reason for each in rejected for reason in each]
            if spec.max_cost_usd is not None:
                # Raises NoCapacity if the job would not fit without the limit either.
                self.check(spec.model_copy(update={"max_cost_usd": None}))
                raise RefusedByPolicy(
                    f"No backend can run this job within its max_cost_usd: it {reasons[0]['why']}.",
                    fix=RAISE_IT,
                    rejected=reasons,
                )
            unreachable = [self.rejection(name, secrets=bool(spec.secrets)) for name in spec.backends]
            raise NoCapacity(
                f"No backend can hold this job: it {reasons[0]['why']}.",
                fix=next((each.fix for each in unreachable if each), LARGER_BACKEND),
                rejected=reasons,
            )
        return need

    def _why_never(self, name: str, spec: JobSpec, need: Resources) -> list[dict[str, str]]:
        """Return why this backend can never hold the job, one entry per offer, or an empty list if it may."""
        backend = self.get(name)
        if spec.in_place and not backend.capabilities.in_place:
            return [{"backend": name, "why": f"is to run in place, which {name} cannot; leave out --in-place"}]
        unreachable = self.rejection(name, secrets=bool(spec.secrets))
        if unreachable is not None:
            return [{"backend": name, "why": f"cannot run on {name}: {unreachable.why}"}]
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
    """Return why the offer can never hold the job. On-demand is the fallback of a job that asks for spot."""
    why = offer_choice.why_never(spec, offer)
    if why and spec.market is Market.SPOT:
        return why if offer_choice.why_never(spec.model_copy(update={"market": Market.ON_DEMAND}), offer) else ""
    return why


def list_unconnected(connected: Sequence[str]) -> Iterable[str]:
    """Return the known backends, and providers whose prices are compared, that are not connected."""
    known = dict.fromkeys((*registry.names(), *sorted(PROVIDERS)))
    return [name for name in known if name not in connected]


def why_unconnected(name: str, connected: Sequence[str]) -> str:
    """Return why nothing runs on this backend and how to connect it, without a full stop; empty for an unknown name.

    The command comes from the backend's row of the registry.
    """
    command = registry.connect_command(name, connected)
    if command is not None:
        return f"{name} is not connected. Connect it: {command}"
    if name not in PROVIDERS:
        return ""
    only = "this version has no backend for it and only compares its prices"
    return f"Not connected, and no command connects {name} yet: {only}"
