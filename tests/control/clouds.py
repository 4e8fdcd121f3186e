"""Fake backends that launch machines on demand, and bill: several zones, spot, its own meter; a provider's queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.control.fakes import FakeBackend

from crucible.backends.base import (
    AlreadyStarted,
    Capabilities,
    LaunchCall,
    MachineOrder,
    MachineRef,
    Metered,
    Reach,
    Seen,
)
from crucible.core.compute.offers import Market, Need, Offer, OnDemand, ProviderQueue
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import Unreachable
from crucible.wire.documents.bootstrap import Bootstrap

SMALL = Capacity(cpus=2, memory_bytes=4 * GiB)
ZONES = ("north-1", "north-2", "south-1")


@dataclass
class FakeCloud(FakeBackend):
    """`rates` are the zones' on-demand prices; spot costs a third. `meter` is the provider's measured usage."""

    name: str = "cloud"
    capabilities: Capabilities = Capabilities(
        reach=Reach.LOOPBACK,
        capacity=OnDemand(),
        markets=frozenset(Market),
        bills=True,
        simulated=True,
        launch_deadline=10.0,
        settle_window=5.0,
    )
    rates: dict[str, int] = field(default_factory=lambda: {zone: 900_000 + i for i, zone in enumerate(ZONES)})
    no_spot: bool = False
    spot_sold_out: bool = False
    capacity_override: Capacity | None = None
    sold_out: set[str] = field(default_factory=set)
    meter: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    orders: list[MachineOrder] = field(default_factory=list)

    def offers(self, need: Need) -> Sequence[Offer]:
        self._reach()
        return [
            Offer(
                self.name,
                zone,
                "sim.small",
                self.capacity_override or SMALL,
                rate if market is Market.ON_DEMAND else rate // 3,
                market=market,
                startup_seconds=30.0,
                why_not="sold out" if zone in self.sold_out or self._is_sold_out(market) else "",
            )
            for zone, rate in self.rates.items()
            for market in (Market.ON_DEMAND, Market.SPOT)
            if market is Market.ON_DEMAND or not self.no_spot
        ]

    def _is_sold_out(self, market: Market) -> bool:
        return self.spot_sold_out and market is Market.SPOT

    def call(self, order: MachineOrder) -> LaunchCall:
        self.orders.append(order)
        return super().call(order)

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        self._reach()
        known = [replace(ref, native_id=f"i-{ref.machine}") for ref in refs if ref.machine in self.meter]
        return [Metered(ref, self.meter[ref.machine]) for ref in known]


@dataclass
class FakeQueue(FakeBackend):
    """A cluster with a queue of its own, in which machines wait until a test starts them.

    `lost_withdrawals` is how many withdrawals are done without an answer. `partial` is how many machines of a gang its
    next launch makes. `backwards`: it names the machines of a gang in the opposite order.
    """

    name: str = "cluster"
    capabilities: Capabilities = Capabilities(
        reach=Reach.LOOPBACK,
        capacity=ProviderQueue(limit=4),
        bills=True,
        gang_in_one_call=True,
        simulated=True,
        launch_deadline=10.0,
        settle_window=5.0,
    )
    rate: int = 900_000
    orders: list[MachineOrder] = field(default_factory=list)
    withdrawn: list[MachineRef] = field(default_factory=list)
    lost_withdrawals: int = 0
    partial: int | None = None
    backwards: bool = False

    def call(self, order: MachineOrder) -> LaunchCall:
        self.orders.append(order)
        call = super().call(order)
        return replace(call, parameters={**call.parameters, "machines": [order.machine, *order.others]})

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        super().launch(call, bootstraps)
        names = [bootstrap.machine for bootstrap in bootstraps]
        made, self.partial = names[: self.partial], None
        for name in made:
            if name == call.token or name not in self.made:
                self.add(name)
                self.made[name].seen = Seen.QUEUED
        return [self.made[name].ref for name in (reversed(made) if self.backwards else made)]

    def find(self, token: str) -> Sequence[MachineRef]:
        call = next((call for call in self.launches if call.token == token), None)
        names = call.parameters["machines"] if call is not None else [token]
        assert isinstance(names, list)
        return [ref for name in names for ref in super(FakeQueue, self).find(name)]

    def withdraw(self, ref: MachineRef) -> None:
        self._reach()
        self.withdrawn.append(ref)
        made = self.made.get(ref.machine)
        if made is not None and made.seen not in (Seen.QUEUED, Seen.GONE):
            raise AlreadyStarted("It has left the queue.")
        if made is not None:
            made.seen = Seen.GONE
        if self.lost_withdrawals:
            self.lost_withdrawals -= 1
            raise Unreachable("No answer.")
