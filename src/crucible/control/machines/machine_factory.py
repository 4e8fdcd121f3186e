"""Build the machine and the attempt of a placement, with the exact call that will launch the machine."""

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
"""Time that a new machine has for its host's first contact, beyond its usual start-up time."""
STAGING_SECONDS = 1800.0
SAVING_SECONDS = 600.0
"""A machine lives this much longer than its job's time limit: to stage the job, and to save its outputs."""


@dataclass(frozen=True)
class LeaseTerms:
    """`lease_seconds`: how long an agent keeps running without contact, on a backend that bills.

    `longest_seconds`: the life of a machine for a job without a time limit; the job then continues on another one.
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

    def shared_machine(self, target: BackendOffer, now: float) -> Machine:
        """Return a machine that several attempts will share."""
        return self._machine(target, f"pool:{target.backend.name}", None, None, now)

    def dedicated_machine(self, target: BackendOffer, attempt: str, world: World, now: float) -> Machine:
        """Return a machine for one attempt alone, with the time at which it ends in any case."""
        abilities, startup = target.backend.capabilities, target.offer.startup_seconds
        spec = world.job.spec
        need = budget.limit_to_budget(world.job.resources, spec.max_cost_micros, target.offer)
        life = self.life_seconds(target, need, spec.grace_seconds)
        host_due = now + abilities.launch_deadline + abilities.settle_window + startup + HOST_SECONDS
        return self._machine(target, f"attempt:{attempt}", now + life, host_due, now)

    def life_seconds(self, target: BackendOffer, need: Resources, grace: float) -> float:
        """Return the seconds after its launch at which a machine for such a job ends in any case."""
        life, most = self._life(need, grace), target.backend.capabilities.max_runtime
        return target.offer.startup_seconds + (life if most is None else min(life, most))

    def machine_id(self) -> str:
        return self._ids.new(Prefix.MACHINE)

    def _life(self, need: Resources, grace: float) -> float:
        if need.seconds is None:
            return self._terms.longest_seconds
        return STAGING_SECONDS + need.seconds + grace + SAVING_SECONDS

    def _machine(
        self, target: BackendOffer, owner: str, ends_at: float | None, host_due: float | None, now: float
    ) -> Machine:
        machine, offer, abilities = self.machine_id(), target.offer, target.backend.capabilities
        call = target.backend.call(MachineOrder(machine, self._deployment, offer, ends_at))
        return Machine(
            id=machine,
            backend=target.backend.name,
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


def placement_reason(world: World, target: BackendOffer) -> str:
    """Return where the job runs and why there, as text for users."""
    offer = target.offer
    size = f"{offer.capacity.cpus:g} CPUs, {format_memory(offer.capacity.memory_bytes)}"
    if offer.capacity.gpus:
        size += f", {len(offer.capacity.gpus)} x {offer.capacity.gpu_name or 'GPU'}"
    price = "free" if not offer.rate else f"${offer.rate / 1e6:.3f}/h{_time_limit(world, offer)}"
    return f"{offer.backend} ({offer.instance_type}: {size}, {price}) because {_why(world, target)}"


def _time_limit(world: World, offer: Offer) -> str:
    """Return as text how long the job may run there if its budget limits that, else an empty string."""
    need, most = world.job.resources, world.job.spec.max_cost_micros
    bounded = budget.limit_to_budget(need, most, offer)
    if most is None or bounded is need or bounded.seconds is None:
        return ""
    return f", for at most {format_duration(bounded.seconds)}, which {budget.usd(most)} buys"


def _why(world: World, target: BackendOffer) -> str:
    spec, name = world.job.spec, target.backend.name
    if name in spec.fallback and name != spec.backend:
        return "it is the next backend you named"
    if spec.backend or name != "local":
        return "you asked for it"
    return "it is free and it fits"
