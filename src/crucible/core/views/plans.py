"""Plans: what a program needs, where it would run, and at what cost."""

from pydantic import Field

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Resources
from crucible.core.routing.profile import Confidence, GpuNeed
from crucible.core.views.base import PartialView, View, sometimes
from crucible.core.views.compute import OfferView
from crucible.core.views.profiles import ProfileView


class CallView(View):
    """A call of a provider's API; `token` makes it idempotent."""

    backend: str = ""
    token: str = ""
    action: str = ""
    parameters: dict[str, object] = Field(default_factory=dict)


class PlannedView(OfferView, PartialView):
    """An offer for one job: what the whole job costs and when it would be done there; None if unknown.

    `most_micros`: the cost if the machine lives until its hard end. `paid_seconds`: after which it is ended there
    because `max_cost_usd` is spent (None: not limited). `score` is 1 for the best; above `ceiling_micros_per_hour` the
    job would not start there. `call` would be sent to the provider for the chosen offer.
    """

    simulated: bool = False
    hourly_usd: float = 0.0
    total_micros: int | None = None
    total_usd: float | None = None
    eta_seconds: float | None = None
    seconds: float | None = None
    transfer_seconds: float = 0.0
    lost_seconds: float | None = None
    machine_micros: int | None = None
    egress_micros: int = 0
    storage_micros: int | None = None
    most_micros: int | None = None
    paid_seconds: float | None = None
    confidence: Confidence = Confidence.LOW
    score: float = 0.0
    ceiling_micros_per_hour: int = 0
    fit: str = ""
    pros: tuple[str, ...] = ()
    cons: tuple[str, ...] = ()
    call: CallView | None = sometimes(None)
    ends_at: str | None = sometimes(None)


class RejectedView(OfferView, PartialView):
    """A rejected offer with the reason in `why`; `alike` counts offers of the same backend and reason.

    `refused`: the user may not run the job there, and `why` says who can allow it. Left out if it is false.
    """

    alike: int = 1
    refused: bool = sometimes(False)


class PricesView(View):
    """The dates of the prices, and a `note` if they are old."""

    oldest: str | None = None
    newest: str | None = None
    oldest_days: int | None = None
    refused: int = 0
    note: str | None = None


class LearnedView(View):
    """The correction by past jobs: the time is `factor` times the model's, after `jobs`, some of the same program."""

    jobs: int = 0
    same_program: int = 0
    factor: float = 1.0


class AccuracyView(View):
    """How good past predictions were; errors are relative to the real time, `close` is the share within 15 %."""

    count: int = 0
    median_error: float | None = None
    close: float | None = None


class SizesView(PartialView):
    """The size of a machine that the program needs, as read from its code."""

    gpus: int = sometimes(0)
    gpu_memory_bytes: int = sometimes(0)
    memory_bytes: int = sometimes(0)


class SubmissionView(PartialView):
    """The fields to add to a submission in order to get the planned offer."""

    backend: str
    market: Market | None = sometimes(None)
    spot_fallback: bool = sometimes(False)
    max_cost_usd: float | None = sometimes(None)
    resources: SizesView = sometimes(SizesView())


class CandidatesView(View):
    """Where a job would run: `offers` best first, those of other providers last, and the rejected ones.

    `chosen` is the offer that it gets; None if no connected backend can run it now, with the reason in `why`.
    `fallback` is the on-demand offer that a job on spot gets instead if no spot machine is available; None: it waits.
    """

    learned: LearnedView | None = None
    why: str | None = None
    chosen: PlannedView | None = None
    fallback: PlannedView | None = None
    offers: tuple[PlannedView, ...] = ()
    offers_count: int = 0
    rejected: tuple[RejectedView, ...] = ()
    rejected_count: int = 0


class JobPlanView(CandidatesView):
    """The plan stored with a job, with the first few of its offers."""

    made_at: str | None = None


class PlanView(CandidatesView):
    """What a program needs and where it would run.

    `chosen` is for a submission with `job` added; with `waits` it would wait there first. `too_dear`: a connected
    backend could run it, but only above `max_cost_usd`. `profile` is None if there was no program to read.
    """

    accuracy: AccuracyView = AccuracyView()
    profile: ProfileView | None = None
    need: Resources = Field(default_factory=Resources)
    gpu: GpuNeed = GpuNeed.NONE
    hours: float | None = None
    hours_on: str | None = None
    hours_said: bool = False
    interruptible: bool = False
    tier: str | None = None
    advice: str = ""
    image: str = ""
    job: SubmissionView | None = None
    waits: bool = False
    too_dear: bool = False
    nearest: OfferView | None = None
    prices: PricesView = PricesView()
