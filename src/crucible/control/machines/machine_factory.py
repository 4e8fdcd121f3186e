"""Build the machine and the attempt of a placement, with the exact call that will launch the machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from crucible.backends.base import MachineOrder
from crucible.control.runtime.ports import Ids
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.compute import budget
from crucible.core.compute.offers import Offer, ProviderQueue
from crucible.core.compute.resources import Resources, format_duration, format_memory
from crucible.core.ids import Prefix, short
from crucible.core.job.spec import DEFAULT_BACKEND
from crucible.core.lifecycle import Attempt, Job, Machine, Slot, World
from crucible.core.scheduling.state import Grant

HOST_SECONDS = 600.0
"""Time that a new machine has for its host's first contact, beyond its usual start-up time."""
STAGING_SECONDS = 1800.0
SAVING_SECONDS = 600.0
"""A machine lives this much longer than its job's time limit: to stage the job, and to save its outputs."""


SHARED_OWNER = "pool:"
"""How the owner of a machine that several attempts share begins; the backend's name follows."""


@dataclass(frozen=True)
class LeaseTerms:
    """`lease_seconds`: how long an agent keeps running without contact, on a backend that bills.

    `longest_seconds`: the life of a machine for a job without a time limit; the job then continues on another one.
    """

    lease_seconds: float = 6 * 3600.0
    longest_seconds: float = 24 * 3600.0


class MachineFactory:
    def __init__(self, ids: Ids, deployment: str, terms: LeaseTerms, backends: ConnectedBackends) -> None:
        self._ids = ids
        self._deployment = deployment
        self._terms = terms
        self._backends = backends

    def attempt_id(self) -> str:
        return self._ids.new(Prefix.ATTEMPT)

    def machine_id(self) -> str:
        return self._ids.new(Prefix.MACHINE)

    def attempt(
        self, world: World, attempt: str, machines: Sequence[Machine], grants: Sequence[Grant], now: float
    ) -> Attempt:
        """Return the job's next attempt, with a rank on each of the machines."""
        pairs = enumerate(zip(machines, grants, strict=True))
        return Attempt(
            id=attempt,
            job=world.job.id,
            number=world.job.attempts + 1,
            generation=world.job.generation,
            backend=machines[0].backend,
            slots=tuple(Slot(rank, machine.id, grant.allocation) for rank, (machine, grant) in pairs),
            placed_at=now,
        )

    def shared_machine(self, offer: Offer, now: float) -> Machine:
        """Return a machine that several attempts will share."""
        order = MachineOrder(self.machine_id(), self._deployment, offer)
        return self._machine(order, f"{SHARED_OWNER}{offer.backend}", now)

    def own_machines(self, world: World, attempt: str, grants: Sequence[Grant], now: float) -> list[Machine]:
        """Return machines for this attempt alone, one for each rank, which end at a certain time in any case."""
        ids = [self.machine_id() for _ in grants]
        can = self._backends.get(grants[0].offer.backend).capabilities
        together = can.gang_in_one_call and len(grants) > 1
        machines: list[Machine] = []
        for rank, (machine, grant) in enumerate(zip(ids, grants, strict=True)):
            if together and machines:
                # One call makes them all, so all of them have that call, with its token.
                machines.append(replace(machines[0], id=machine))
                continue
            life = self.life_of(world.job, grant.offer)
            order = MachineOrder(
                machine=machine,
                deployment=self._deployment,
                offer=grant.offer,
                ends_at=None if isinstance(can.capacity, ProviderQueue) else now + life,
                ends_after=life,
                label=world.job.spec.name or short(world.job.id),
                allocation=grant.allocation,
                rank=rank,
                ranks=len(grants),
                others=tuple(ids[1:]) if together else (),
            )
            made = self._machine(order, f"attempt:{attempt}", now)
            machines.append(replace(made, gang=ids[0]) if together else made)
        return machines

    def life_of(self, job: Job, offer: Offer) -> float:
        """Return the seconds after its start at which a machine for an attempt of this job ends in any case."""
        need = budget.limit_to_budget(job.resources, job.spec.max_cost_micros, offer)
        return self.life_seconds(offer, need, job.spec.grace_seconds)

    def life_seconds(self, offer: Offer, need: Resources, grace: float) -> float:
        """Return the seconds after its start at which a machine for such a job ends in any case."""
        life, most = self._life(need, grace), self._backends.get(offer.backend).capabilities.max_runtime
        return offer.startup_seconds + (life if most is None else min(life, most))

    def _life(self, need: Resources, grace: float) -> float:
        if need.seconds is None:
            return self._terms.longest_seconds
        return STAGING_SECONDS + need.seconds + grace + SAVING_SECONDS

    def _machine(self, order: MachineOrder, owner: str, now: float) -> Machine:
        """Return the machine of this order. Its clocks start at its start where a provider may let it wait, else now.

        A machine that several attempts share ends when it is released.
        """
        offer, backend = order.offer, self._backends.get(order.offer.backend)
        can, call = backend.capabilities, backend.call(order)
        waits, own = isinstance(can.capacity, ProviderQueue), order.ends_after is not None
        deadline = can.launch_deadline + can.settle_window
        host_seconds = deadline + offer.startup_seconds + HOST_SECONDS
        return Machine(
            id=order.machine,
            backend=backend.name,
            owner=owner,
            call=json.dumps(asdict(call), sort_keys=True),
            rate=offer.rate,
            billing=offer.billing,
            bills=can.bills,
            simulated=can.simulated,
            created_at=now,
            started_at=None if waits else now,
            node=offer.node.id if offer.node else "",
            launch_deadline=now + deadline,
            settle_window=can.settle_window,
            lease_seconds=self._terms.lease_seconds if can.bills else None,
            # Where a provider may let it wait, this bounds the launch alone: it stands still once that is answered.
            host_due=now + host_seconds if own else None,
            host_seconds=host_seconds if own else None,
            ends_at=order.ends_at,
            life_seconds=order.ends_after,
            capacity=offer.capacity,
            instance_type=offer.instance_type,
            region=offer.region,
            market=offer.market,
        )


def placement_reason(world: World, offer: Offer) -> str:
    """Return where the job runs and why there, as text for users."""
    size = f"{offer.capacity.cpus:g} CPUs, {format_memory(offer.capacity.memory_bytes)}"
    if offer.capacity.gpus:
        size += f", {len(offer.capacity.gpus)} x {offer.capacity.gpu_name or 'GPU'}"
    price = "free" if not offer.rate else f"${offer.rate / 1e6:.3f}/h{_time_limit(world, offer)}"
    return f"{offer.backend} ({offer.instance_type}: {size}, {price}) because {_why(world, offer)}"


def _time_limit(world: World, offer: Offer) -> str:
    """Return as text how long the job may run there if its budget limits that, else an empty string."""
    need, most = world.job.resources, world.job.spec.max_cost_micros
    bounded = budget.limit_to_budget(need, most, offer)
    if most is None or bounded is need or bounded.seconds is None:
        return ""
    return f", for at most {format_duration(bounded.seconds)}, which {budget.usd(most)} buys"


def _why(world: World, offer: Offer) -> str:
    spec, name = world.job.spec, offer.backend
    if name in spec.fallback and name != spec.backend:
        return "it is the next backend you named"
    if spec.backend or name != DEFAULT_BACKEND:
        return "you asked for it"
    return "it is free and it fits"
