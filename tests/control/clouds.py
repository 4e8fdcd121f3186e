"""A fake backend that launches machines on demand and bills: several zones, spot, its own meter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.control.fakes import FakeBackend

from crucible.backends.base import Capabilities, LaunchCall, MachineOrder, MachineRef, Metered, Reach, Slots
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Capacity, GiB, Resources

SMALL = Capacity(cpus=2, memory_bytes=4 * GiB)
ZONES = ("north-1", "north-2", "south-1")


@dataclass
class FakeCloud(FakeBackend):
    """`rates` are the zones' on-demand prices; spot costs a third. `meter` is the provider's measured usage."""

    name: str = "cloud"
    capabilities: Capabilities = Capabilities(
        reach=Reach.LOOPBACK,
        slots=Slots.ELASTIC,
        markets=frozenset(Market),
        bills=True,
        simulated=True,
        launch_deadline=10.0,
        settle_window=5.0,
    )
    rates: dict[str, int] = field(default_factory=lambda: {zone: 900_000 + i for i, zone in enumerate(ZONES)})
    no_spot: bool = False
    capacity_override: Capacity | None = None
    sold_out: set[str] = field(default_factory=set)
    meter: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    orders: list[MachineOrder] = field(default_factory=list)

    def offers(self, need: Resources) -> Sequence[Offer]:
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
                why_not="sold out" if zone in self.sold_out else "",
            )
            for zone, rate in self.rates.items()
            for market in (Market.ON_DEMAND, Market.SPOT)
            if market is Market.ON_DEMAND or not self.no_spot
        ]

    def call(self, order: MachineOrder) -> LaunchCall:
        self.orders.append(order)
        return super().call(order)

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        self._reach()
        known = [replace(ref, native_id=f"i-{ref.machine}") for ref in refs if ref.machine in self.meter]
        return [Metered(ref, self.meter[ref.machine]) for ref in known]
