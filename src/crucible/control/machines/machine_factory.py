"""Orders: the machine and the attempt that a placement wants, as values with the exact call that makes them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from crucible.backends.base import MachineOrder
from crucible.control.runtime.ports import Ids
from crucible.control.scheduling.backends import BackendOffer
from crucible.core.compute import budget
from crucible.core.compute.offers import Offer
from crucible.core.compute.resources import Allocation, Resources, format_duration, format_memory
from crucible.core.ids import Prefix
from crucible.core.lifecycle import Attempt, Machine, Slot, World

HOST_SECONDS = 600.0
"""How long a machine that was made may take until its host makes contact, beyond its usual start-up."""
STAGING_SECONDS = 1800.0
SAVING_SECONDS = 600.0
"""Around a job's own time limit a machine lives long enough to prepare it and to save what it leaves."""


@dataclass(frozen=True)
class LeaseTerms:
    """`lease_seconds`: how long an agent on a place that bills goes on without contact.

    `longest_seconds`: the life of a machine for a job without a time limit; the job then goes on on another.
    """

    lease_seconds: float = 6 * 3600.0
    longest_seconds: float = 24 * 3600.0


class MachineFactory:
    def __init__(self, ids: Ids, deployment: str, terms: LeaseTerms) -> None:
        self._ids = ids
        self._deployment = deployment
        self._terms = terms

    def attempt_id(self) -> str:
        return self._ids.new(Prefix.ATTEMPT)

    def attempt(self, world: World, attempt: str, machine: Machine, slots: Allocation, now: float) -> Attempt:
        return Attempt(
            id=attempt,
            job=world.job.id,
            number=world.job.attempts + 1,
            generation=world.job.generation,
            backend=machine.backend,
            slots=(Slot(0, machine.id, slots),),
            placed_at=now,
        )

    def shared_machine(self, place: BackendOffer, now: float) -> Machine:
        """A machine that several attempts will use."""
        return self._machine(place, f"pool:{place.backend.name}", None, None, now)

    def dedicated_machine(self, place: BackendOffer, attempt: str, world: World, now: float) -> Machine:
        """A machine for one attempt alone, with the end of its life."""
        abilities, startup = place.backend.capabilities, place.offer.startup_seconds
        spec = world.job.spec
        need = budget.capped(world.job.resources, spec.max_cost_micros, place.offer)
        life = self.life_seconds(place, need, spec.grace_seconds)
        host_due = now + abilities.launch_deadline + abilities.settle_window + startup + HOST_SECONDS
        return self._machine(place, f"attempt:{attempt}", now + life, host_due, now)

    def life_seconds(self, place: BackendOffer, need: Resources, grace: float) -> float:
        """Seconds from its launch after which a machine for such a job ends, whatever happens."""
        life, most = self._life(need, grace), place.backend.capabilities.max_runtime
        return place.offer.startup_seconds + (life if most is None else min(life, most))

    def machine_id(self) -> str:
        return self._ids.new(Prefix.MACHINE)

    def _life(self, need: Resources, grace: float) -> float:
        if need.seconds is None:
            return self._terms.longest_seconds
        return STAGING_SECONDS + need.seconds + grace + SAVING_SECONDS

    def _machine(
        self, place: BackendOffer, owner: str, ends_at: float | None, host_due: float | None, now: float
    ) -> Machine:
        machine, offer, abilities = self.machine_id(), place.offer, place.backend.capabilities
        call = place.backend.call(MachineOrder(machine, self._deployment, offer, ends_at))
        return Machine(
            id=machine,
            backend=place.backend.name,
            owner=owner,
            call=json.dumps(asdict(call), sort_keys=True),
            rate=offer.rate,
            billing=offer.billing,
            bills=abilities.bills,
            simulated=abilities.simulated,
            created_at=now,
            launch_deadline=now + abilities.launch_deadline + abilities.settle_window,
            settle_window=abilities.settle_window,
            lease_seconds=self._terms.lease_seconds if abilities.bills else None,
            host_due=host_due,
            ends_at=ends_at,
            capacity=offer.capacity,
            instance_type=offer.instance_type,
            region=offer.region,
            market=offer.market,
        )


def placement_reason(world: World, place: BackendOffer) -> str:
    """Where it runs and why there, in words."""
    offer = place.offer
    size = f"{offer.capacity.cpus:g} CPUs, {format_memory(offer.capacity.memory_bytes)}"
    if offer.capacity.gpus:
        size += f", {len(offer.capacity.gpus)} x {offer.capacity.gpu_name or 'GPU'}"
    price = "free" if not offer.rate else f"${offer.rate / 1e6:.3f}/h{_time_limit(world, offer)}"
    return f"{offer.backend} ({offer.instance_type}: {size}, {price}) because {_why(world, place)}"


def _time_limit(world: World, offer: Offer) -> str:
    """How long it may run there, where that is what its money buys."""
    need, most = world.job.resources, world.job.spec.max_cost_micros
    bounded = budget.capped(need, most, offer)
    if most is None or bounded is need or bounded.seconds is None:
        return ""
    return f", for at most {format_duration(bounded.seconds)}, which {budget.usd(most)} buys"


def _why(world: World, place: BackendOffer) -> str:
    spec, name = world.job.spec, place.backend.name
    if name in spec.fallback and name != spec.backend:
        return "it is the next place you named"
    if spec.backend or name != "local":
        return "you asked for it"
    return "it is free and it fits"
