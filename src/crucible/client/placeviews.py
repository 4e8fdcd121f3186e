"""Places, machines and plans, as the server tells of them."""

from typing import Any

from pydantic import Field

from crucible.client.views import View
from crucible.core.offers import Availability, Market, Offer
from crucible.core.profile import Confidence, GpuNeed
from crucible.core.resources import Capacity


class OfferView(View):
    """A place that could run a job, with its price by the hour; `why` it cannot just now."""

    backend: str = ""
    region: str = ""
    instance_type: str = ""
    capacity: Capacity
    market: Market = Market.ON_DEMAND
    rate_micros_per_hour: int = 0
    availability: str = Availability.AVAILABLE.value
    wait_seconds: float = 0.0
    startup_seconds: float = 0.0
    runnable: bool = True
    why: str | None = None

    def as_offer(self) -> Offer:
        return Offer(
            backend=self.backend,
            region=self.region,
            instance_type=self.instance_type,
            capacity=self.capacity,
            rate=self.rate_micros_per_hour,
            market=self.market,
            why_not=self.why or "",
        )


class PlannedView(OfferView):
    """An offer for one job: what all of it costs and when it would be done there; None where nobody knows.

    `most_micros`: what it costs if the machine lives until its hard end. `score` is 1 for the best.
    """

    simulated: bool = False
    total_micros: int | None = None
    eta_seconds: float | None = None
    seconds: float | None = None
    lost_seconds: float | None = None
    confidence: Confidence = Confidence.LOW
    score: float = 0.0
    ceiling_micros_per_hour: int = 0
    fit: str = ""
    pros: tuple[str, ...] = ()
    cons: tuple[str, ...] = ()
    dated: str = ""
    most_micros: int | None = None
    call: dict[str, object] | None = None
    ends_at: str | None = None


class RejectedView(OfferView):
    """With the reason in `why`; `alike` of the same place are out for the same."""

    alike: int = 1


class PricesView(View):
    oldest: str | None = None
    newest: str | None = None
    oldest_days: int | None = None
    note: str | None = None


class LearnedView(View):
    """What past jobs change: the time is `factor` times what the model says, after `jobs`, some of the same program."""

    jobs: int = 0
    same_program: int = 0
    factor: float = 1.0


class AccuracyView(View):
    """Of predictions whose jobs have ended; errors are shares of what it took, `close` is the share within 15 %."""

    count: int = 0
    median_error: float | None = None
    close: float | None = None


class PlanView(View):
    """What a program needs and where it would run: `offers` best first, those of other providers last.

    `chosen` is what a submission with `job` added gets; None: nothing that is connected can run it now, and `why`.
    It would wait there where `waits`. `profile` is None where there was no program to read. `id` is what a job that
    follows this plan names.
    """

    id: str | None = None
    learned: LearnedView | None = None
    accuracy: AccuracyView = AccuracyView()
    profile: dict[str, Any] | None = None
    need: dict[str, Any] = Field(default_factory=dict)
    gpu: GpuNeed = GpuNeed.NONE
    hours: float | None = None
    hours_on: str | None = None
    interruptible: bool = False
    tier: str | None = None
    advice: str = ""
    image: str = ""
    chosen: PlannedView | None = None
    job: dict[str, Any] | None = None
    waits: bool = False
    why: str | None = None
    offers: tuple[PlannedView, ...] = ()
    offers_count: int = 0
    rejected: tuple[RejectedView, ...] = ()
    rejected_count: int = 0
    nearest: OfferView | None = None
    prices: PricesView = PricesView()


class BackendView(View):
    name: str
    connected: bool = False
    detail: str | None = None
    simulated: bool = False
    capabilities: dict[str, object] = Field(default_factory=dict)
    offers: tuple[dict[str, object], ...] = ()

    @property
    def is_simulated(self) -> bool:
        return self.simulated or self.capabilities.get("simulated") is True


class BackendPage(View):
    items: tuple[BackendView, ...] = ()


class MachineView(View):
    """`owner` is who it is for, such as `attempt:att-…`; `native_id` what the provider calls it."""

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
    created_at: str | None = None

    @property
    def called(self) -> str:
        return self.short or self.id or self.native_id or ""

    @property
    def gone(self) -> bool:
        return self.state == "gone"


class MachinePage(View):
    items: tuple[MachineView, ...] = ()


class OrphanView(View):
    """A machine with our tag that we do not know, or that should be gone; `machine` is our id, if we know it."""

    backend: str = ""
    machine: str | None = None
    native_id: str = ""
    region: str | None = None
    why: str = ""


class OrphanPage(View):
    items: tuple[OrphanView, ...] = ()
