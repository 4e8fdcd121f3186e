"""Backends, offers and machines."""

from crucible.core.compute.offers import Availability, Billing, Market, Offer
from crucible.core.compute.resources import Capacity
from crucible.core.views.base import PartialView, View, sometimes


class BillingView(View):
    """Time is billed in steps of `granularity` seconds, at least `minimum` of them."""

    granularity: int = 1
    minimum: int = 0


class OfferView(View):
    """A machine that could run a job, with its hourly price; `why` it cannot at the moment."""

    backend: str = ""
    region: str = ""
    instance_type: str = ""
    capacity: Capacity
    market: Market = Market.ON_DEMAND
    rate_micros_per_hour: int = 0
    billing: BillingView = BillingView()
    availability: str = Availability.AVAILABLE.value
    wait_seconds: float = 0.0
    startup_seconds: float = 0.0
    dated: str | None = None
    runnable: bool = True
    why: str | None = None

    def as_offer(self) -> Offer:
        return Offer(
            backend=self.backend,
            region=self.region,
            instance_type=self.instance_type,
            capacity=self.capacity,
            rate=self.rate_micros_per_hour,
            billing=Billing(self.billing.granularity, self.billing.minimum),
            market=self.market,
            startup_seconds=self.startup_seconds,
            why_not=self.why or "",
        )


class CapabilitiesView(View):
    """The abilities of a backend. `reach`: how its agents reach the server.

    `slots`: who decides what fits there. `counted`: Crucible counts the slots of its nodes; `elastic`: a machine is
    made for each attempt; `theirs`: a machine is made for each attempt, and waits in the provider's own queue.
    """

    reach: str = ""
    slots: str = ""
    markets: tuple[Market, ...] = ()
    bills: bool = True
    shared_machines: bool = False
    in_place: bool = False
    agent_python: str = ""
    simulated: bool = False
    max_runtime: float | None = None
    launch_deadline: float = 0.0
    settle_window: float = 0.0


class BackendView(PartialView):
    name: str
    connected: bool = False
    detail: str | None = None
    simulated: bool = sometimes(False)
    capabilities: CapabilitiesView = CapabilitiesView()
    offers: tuple[OfferView, ...] = ()

    @property
    def is_simulated(self) -> bool:
        return self.simulated or self.capabilities.simulated


class OtherBackendView(View):
    """A known backend that is not connected; `why` includes the command that connects it, if there is one."""

    name: str
    why: str = ""


class BackendPage(View):
    items: tuple[BackendView, ...] = ()
    others: tuple[OtherBackendView, ...] = ()


class MachineView(View):
    """A machine. `owner` is what it serves, such as `attempt:att-…`; `native_id` is the provider's id."""

    id: str = ""
    short: str = ""
    state: str = ""
    backend: str | None = None
    owner: str | None = None
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    native_id: str | None = None
    simulated: bool = False
    bills: bool = False
    rate_micros_per_hour: int = 0
    cost_micros: int = 0
    detail: str | None = None
    capacity: Capacity | None = None
    created_at: str | None = None
    queued_at: str | None = None
    started_at: str | None = None
    up_at: str | None = None
    gone_at: str | None = None
    last_seen: str | None = None
    ends_at: str | None = None

    @property
    def display_name(self) -> str:
        return self.short or self.id or self.native_id or ""

    @property
    def gone(self) -> bool:
        return self.state == "gone"


class MachinePage(View):
    items: tuple[MachineView, ...] = ()


class OrphanView(View):
    """A machine with our tag that is unknown, or should be gone; `machine` is our id, if we know it."""

    backend: str = ""
    machine: str | None = None
    short: str | None = None
    native_id: str = ""
    region: str | None = None
    why: str = ""

    @property
    def display_name(self) -> str:
        return self.short or self.native_id


class OrphanPage(View):
    items: tuple[OrphanView, ...] = ()


class TierView(View):
    """A named size. `memory` and `gpu` are words, `costPerHour` dollars."""

    id: str
    name: str = ""
    description: str = ""
    cpu: float | None = None
    memory: str = ""
    gpu: str | None = None
    maxRuntime: str = ""
    costPerHour: float = 0.0


class TierPage(View):
    items: tuple[TierView, ...] = ()
