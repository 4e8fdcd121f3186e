"""Plans: where a job would run, its cost and the exact launch call; and the accuracy of predictions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from crucible.backends.base import MachineOrder
from crucible.catalog import PROVIDERS
from crucible.control.jobs.views import iso
from crucible.control.machines.machine_factory import MachineFactory
from crucible.control.planning import plan_views
from crucible.control.planning.accuracy import Lessons, accuracy_view, list_predictions
from crucible.control.planning.profiles import Profiles
from crucible.control.resources.catalog import Catalog, UnconnectedOffers, ages
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backend_access import BackendAccess
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.core.compute import budget
from crucible.core.compute.offers import Market, Nodes, Offer
from crucible.core.compute.pricing import Segment, machine_cost
from crucible.core.compute.resources import MIN_MEMORY
from crucible.core.compute.tiers import effective_resources
from crucible.core.errors import BadInput, UnknownName
from crucible.core.people.identity import DEFAULT_PROJECT, Identity, Permission
from crucible.core.routing.corrections import Forecast, PastRuns, Similarity
from crucible.core.routing.estimate import duration
from crucible.core.routing.images import image_for
from crucible.core.routing.machine_speed import DataSheetSpeeds
from crucible.core.routing.measured_speed import CorrectedSpeeds, gpu_used
from crucible.core.routing.plan import Plan, RankedOffer, RejectedOffer, route
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed, HostMemory, Profile
from crucible.core.routing.profile_input import UNREAD, make_workload, requested_resources
from crucible.core.routing.sizes import explain_tier, smallest_tier
from crucible.core.routing.workload import GpuMemory, Workload
from crucible.core.scheduling import fit
from crucible.core.views.compute import OfferView
from crucible.core.views.plans import CallView, CandidatesView, PlannedView, PlanView, PricesView
from crucible.core.views.predictions import PredictionPage
from crucible.core.views.profiles import ProfileView

LANE = "planning"
SECONDS = 30.0


@dataclass(frozen=True)
class _Routed:
    """`offers` are those that can run the job, then those that could once connected; `best` is one of the former."""

    plain: Workload
    """As estimated from the program alone, without corrections by past jobs."""
    work: Workload
    learned: CorrectedSpeeds
    plan: Plan
    offers: list[RankedOffer]
    best: RankedOffer | None
    fallback: RankedOffer | None
    """The on-demand offer for a job on spot, if it may fall back to one."""
    read: bool
    """Whether the runtime was predicted from the program."""
    refused: Mapping[str, str]
    """Why the user may not run the job on a backend, by its name."""


class Plans:
    def __init__(
        self,
        ports: Ports,
        backends: ConnectedBackends,
        offers: OfferBook,
        factory: MachineFactory,
        deployment: str,
        catalog: Catalog,
        access: BackendAccess,
    ) -> None:
        self._ports = ports
        self._backends = backends
        self._offers = offers
        self._factory = factory
        self._deployment = deployment
        self._catalog = catalog
        self._access = access
        self._lessons = Lessons(ports.db)
        self._profiles = Profiles(ports.calls)
        self._known = DataSheetSpeeds()

    async def plan(self, who: Identity, request: PlanRequest) -> PlanView:
        """Return offers of all backends, best first: those that can run the job, then those that could once connected.

        `chosen` is what a submission with `job` added would get now; if nothing that is connected can run the job it
        is None, and `why` says why. Nothing is sent to a provider, and nothing changes.
        Raises UnknownName for a backend, tier or GPU type, and BadInput for options that contradict each other.
        """
        who.require_submitter()
        now = self._ports.clock.now()
        profile = await self._profile(request, who.authority)
        unconnected = await self._catalog.unconnected()
        experience = await self._lessons.current(now)
        return await self._ports.calls.run(
            LANE,
            lambda: self._plan_view(request, profile, unconnected, experience, now, self._refused(request, who)),
            SECONDS,
        )

    async def plan_job(self, request: PlanRequest) -> tuple[CandidatesView, Forecast | None]:
        """Return the plan to store with a job, and a prediction of its runtime if there is one."""
        profile = await self._profile(request)
        experience = await self._lessons.current(self._ports.clock.now())
        return await self._ports.calls.run(LANE, lambda: self._plan_job(request, profile, experience), SECONDS)

    async def predictions(self, who: Identity, *, limit: int, cursor: str | None) -> PredictionPage:
        """Return predicted and actual runtimes of jobs, newest first, and the overall accuracy."""
        return await self._ports.db.read(lambda conn: list_predictions(conn, limit, cursor, who))

    async def _profile(self, request: PlanRequest, authority: Hashable = None) -> Profile | None:
        """Return the profile of the request's program, or None if it has none. Raises as `plan` does.

        The cache is not shared between different values of `authority`.
        """
        self._check(request)
        program = request.program
        return None if program is None else await self._profiles.get(program, authority)

    def close(self) -> None:
        self._profiles.close()

    def _check(self, request: PlanRequest) -> None:
        for name in (*request.named_backends, *request.allowed_backends):
            if not self._backends.has(name) and name not in PROVIDERS:
                known = {*self._backends.names(), *PROVIDERS}
                raise UnknownName("backend", name, known, fix=self._backends.how_to_connect(name))
        _check_named(request.named_backends, request.allowed_backends)
        requested_resources(request)

    def _plan_view(
        self,
        request: PlanRequest,
        profile: Profile | None,
        unconnected: UnconnectedOffers,
        experience: PastRuns,
        now: float,
        refused: Mapping[str, str],
    ) -> PlanView:
        routed = self._route(request, profile, () if request.in_place else unconnected.offers, experience, refused)
        work, best, compute = routed.work, routed.best, routed.work.compute
        read, tier = profile or UNREAD, smallest_tier(work)
        chosen = None if best is None else self._chosen_view(best, request, now)
        waits = None if chosen else self._waits(request, routed)
        return PlanView(
            **dict(self._candidates(request, routed, experience, chosen)),
            profile=None if profile is None else ProfileView.from_profile(profile),
            need=work.need,
            gpu=work.gpu,
            hours=None if compute is None else round(compute.seconds / 3600, 4),
            hours_on=None if compute is None or not compute.gpu else compute.gpu,
            hours_said=request.hours is not None,
            interruptible=work.interruptible,
            tier=tier.id if tier else None,
            advice=explain_tier(read, work),
            image=image_for(read.frameworks.value or (), gpu=work.gpu is not GpuNeed.NONE),
            accuracy=accuracy_view(experience.accuracy),
            job=plan_views.submission_view(
                chosen or waits,
                request,
                self._submitted_sizes(best, request, work),
                may_fall_back=routed.fallback is not None,
            ),
            waits=waits is not None,
            too_dear=not chosen and not waits and plan_views.exceeds_max_cost(routed.plan),
            nearest=plan_views.nearest_view(routed.plan),
            prices=PricesView(**ages(unconnected.stock), note=plan_views.old_prices_note(unconnected.stock)),
        )

    def _plan_job(
        self, request: PlanRequest, profile: Profile | None, experience: PastRuns
    ) -> tuple[CandidatesView, Forecast | None]:
        routed = self._route(request, profile, (), experience, {})
        chosen = None if routed.best is None else self._view(routed.best, request)
        plan = self._candidates(request, routed, experience, chosen)
        return plan, self._forecast(request, profile, routed)

    def _candidates(
        self, request: PlanRequest, routed: _Routed, experience: PastRuns, chosen: PlannedView | None
    ) -> CandidatesView:
        """Return the candidates and the rejected offers, as many as the request asks for."""
        plan, offers, best = routed.plan, routed.offers, routed.best
        selected = offers if request.every_region else plan_views.best_of_each_type(offers)
        unheard = [n for n in self._backends.names() if self._backends.rejection(n, secrets=bool(request.secrets))]
        learned = plan_views.learned_view(routed.learned, experience.jobs, routed.work, best) if routed.read else None
        return CandidatesView(
            learned=learned,
            why=None
            if best
            else plan_views.why_no_offer(
                plan, self._waits(request, routed), unheard, self._first_refused(request, routed.refused)
            ),
            chosen=chosen,
            fallback=None if routed.fallback is None else self._view(routed.fallback, request),
            offers=tuple(self._view(offer, request) for offer in selected[: request.limit]),
            offers_count=len(offers),
            rejected=plan_views.rejected_views(plan, request.limit),
            rejected_count=len(plan.rejected),
        )

    def _first_refused(self, request: PlanRequest, refused: Mapping[str, str]) -> str:
        """Return the reason that ruled out a named backend, or every backend; empty if there is none."""
        names = request.named_backends or self._backends.names()
        why = [refused[name] for name in names if name in refused]
        return why[0] if why and (request.named_backends or len(why) == len(names)) else ""

    def _waits(self, request: PlanRequest, routed: _Routed) -> OfferView | None:
        usable = [name for name in self._backends.names() if self._is_usable(name, request, routed.refused)]
        return plan_views.waiting_offer(routed.plan, usable)

    def _is_usable(self, name: str, request: PlanRequest, refused: Mapping[str, str]) -> bool:
        return self._backends.has(name) and name not in refused and not self._why_not(request, name)

    def _route(
        self,
        request: PlanRequest,
        profile: Profile | None,
        foreign: Iterable[Offer],
        experience: PastRuns,
        refused: Mapping[str, str],
    ) -> _Routed:
        read, named = _runtime_is_predicted(request, profile), request.named_backends
        plain = make_workload(request, profile or UNREAD)
        learned = CorrectedSpeeds(self._known, experience, *_likeness(request, profile))
        work = make_workload(request, profile or UNREAD, learned.correction_for(plain.compute))
        known = learned if read else self._known
        offers = [*self._connected(request, refused), *foreign]
        plan = route(work, request, offers, known)
        if not _all_can_hold(plan, named):
            plain, work = _relaxed(request, plain), _relaxed(request, work)
            plan = route(work, request, offers, known)
        plan = replace(plan, rejected=(*self._refused_offers(refused), *plan.rejected))
        ranked = _in_named_order(plan.ranked, named)
        all_ranked = [learned.with_confidence(offer) if read else offer for offer in (*ranked, *plan.unconnected)]
        best = self._scheduler_choice(all_ranked[: len(ranked)], request, work) if ranked else None
        target = best or next((one for one in all_ranked if self._is_usable(one.offer.backend, request, refused)), None)
        on_demand = _on_demand_instead(target, all_ranked, request)
        fallback = self._scheduler_choice(on_demand, request, work) if on_demand else None
        return _Routed(plain, work, learned, plan, all_ranked, best, fallback, read, refused)

    def _forecast(self, request: PlanRequest, profile: Profile | None, routed: _Routed) -> Forecast | None:
        """Return the prediction to store; None if the runtime was not predicted or the machine is simulated."""
        if routed.best is None:
            return None
        plain, offer, predicted = routed.plain, routed.best.offer, routed.best.estimate.seconds
        analytic, _ = duration(plain, offer, self._known)
        if not (routed.read and analytic and predicted) or self._simulated(offer.backend):
            return None
        framework, script = _likeness(request, profile)
        like = Similarity(framework, gpu_used(plain, offer), script)
        return Forecast(like, offer.backend, offer.instance_type, analytic, predicted)

    def _refused(self, request: PlanRequest, who: Identity) -> dict[str, str]:
        """Return why submission would refuse the job, by the name of the backend that the user may not use.

        Without the name of a project, a backend is refused if no project of the user may use it.
        """
        allowed = request.named_backends or request.allowed_backends
        writable = frozenset({request.project}) if request.project else who.projects(Permission.WRITE)
        projects = (DEFAULT_PROJECT,) if writable is None else sorted(writable)
        found = {}
        for name in self._backends.names():
            refusals = [self._access.refusal(name, who, project) for project in projects]
            if all(refusals) and (not allowed or name in allowed):
                found[name] = str(refusals[0])
        return found

    def _refused_offers(self, refused: Mapping[str, str]) -> Iterator[RejectedOffer]:
        for name, why in refused.items():
            for offer in self._offers.get(name) or ():
                yield RejectedOffer(replace(offer, why_not=why), why, refused=True)

    def _connected(self, request: PlanRequest, refused: Mapping[str, str]) -> Iterator[Offer]:
        for name in self._backends.names():
            if name in refused:
                continue
            for offer in self._offers.get(name) or ():
                yield replace(offer, why_not=offer.why_not or self._why_not(request, name))

    def _why_not(self, request: PlanRequest, name: str) -> str:
        unheard = self._backends.rejection(name, secrets=bool(request.secrets))
        if unheard is not None:
            return str(unheard)
        lacking = self._backends.why_no_files(name, request)
        if lacking:
            return f"the job {lacking}"
        abilities = self._backends.get(name).capabilities
        if abilities.simulated and name not in (*request.named_backends, *request.allowed_backends):
            return f"{name} is simulated. To rehearse there: --backend {name}"
        return ""

    def _chosen_view(self, best: RankedOffer, request: PlanRequest, now: float) -> PlannedView:
        """Return the best offer with its launch call, which carries a made-up machine id."""
        life = self._life(best.offer, request)
        ends_at = None if life is None else now + life
        order = MachineOrder(self._factory.machine_id(), self._deployment, best.offer, ends_at, life)
        call = CallView(**asdict(self._backends.get(best.offer.backend).call(order)))
        return self._view(best, request).model_copy(update={"call": call, "ends_at": iso(ends_at)})

    def _scheduler_choice(self, ranked: list[RankedOffer], request: PlanRequest, work: Workload) -> RankedOffer:
        """Return the offer that the scheduler would choose on the backend of the first one, in its market."""
        first = ranked[0]
        backend = self._backends.get(first.offer.backend)
        if isinstance(backend.capabilities.capacity, Nodes):
            return first
        need, market = work.need_on(first.offer.capacity), first.offer.market
        update = {"resources": need, "market": market, "spot_fallback": False}
        spec = request.model_copy(update=update)
        here = [one for one in ranked if one.offer.backend == backend.name]
        fitting = [one for one in here if one.offer.runnable and not fit.why_never(spec, one.offer)]
        return min(fitting, key=lambda one: (one.offer.rate, one.offer.startup_seconds), default=first)

    def _submitted_sizes(self, best: RankedOffer | None, request: PlanRequest, work: Workload) -> dict[str, int]:
        """Return the sizes that a submission has to give in order to get what is planned."""
        need = work.need if best is None else work.need_on(best.offer.capacity)
        gpus = {"gpus": need.gpus, "gpu_memory_bytes": need.gpu_memory_bytes or 0} if need.gpus else {}
        memory = 0 if best is None else self._submitted_memory(best.offer, request, work)
        return {name: size for name, size in {**gpus, "memory_bytes": memory}.items() if size}

    def _submitted_memory(self, offer: Offer, request: PlanRequest, work: Workload) -> int:
        """Return the memory to ask for, or 0 to ask for none.

        It is only asked for where a machine is made for the job. On counted slots it would be a limit, and an estimate
        must not limit a job; so too if the job may fall back to such a backend. A job that takes whatever GPU there is
        must not ask for a size, because it would then get the GPUs it asked for: none. Nor is a lower bound a size.
        """
        if work.host_is_least or len(request.named_backends) > 1 or (offer.capacity.gpus and not work.need.gpus):
            return 0
        if isinstance(self._backends.get(offer.backend).capabilities.capacity, Nodes):
            return 0
        return max(work.memory_on(offer.capacity), MIN_MEMORY) if work.host.total else 0

    def _view(self, one: RankedOffer, request: PlanRequest) -> PlannedView:
        return plan_views.planned_view(
            one,
            simulated=self._simulated(one.offer.backend),
            most_micros=self._max_cost(one.offer, request),
            paid_seconds=budget.affordable_seconds(request.max_cost_micros, one.offer),
        )

    def _max_cost(self, offer: Offer, request: PlanRequest) -> int | None:
        """Return what one attempt costs if its machine lives until its hard end; None if that is unknown."""
        if not self._backends.has(offer.backend):
            return None
        life = self._life(offer, request)
        if life is None:
            return None if offer.rate else 0
        return machine_cost([Segment(0.0, life, offer.rate)], offer.billing, life)

    def _life(self, offer: Offer, request: PlanRequest) -> float | None:
        """Return how long the machine lives at most, in seconds; None for one that several jobs share."""
        if self._backends.get(offer.backend).capabilities.shares_machines:
            return None
        need = budget.limit_to_budget(
            effective_resources(request.tier, request.resources), request.max_cost_micros, offer
        )
        return self._factory.life_seconds(offer, need, request.grace_seconds)

    def _simulated(self, name: str) -> bool:
        return self._backends.has(name) and self._backends.get(name).capabilities.simulated


def _likeness(request: PlanRequest, profile: Profile | None) -> tuple[str, str]:
    """Return the main framework and the script, by which jobs count as alike wherever they run."""
    program = request.program
    return next(iter((profile or UNREAD).frameworks.value or ()), ""), program.script if program else ""


def _runtime_is_predicted(request: PlanRequest, profile: Profile | None) -> bool:
    """Return whether the runtime comes from reading the program, not from the request."""
    return request.hours is None and (profile or UNREAD).runtime_hours.known


def _relaxed(request: PlanRequest, work: Workload) -> Workload:
    """Return the work without requirements read from the program: users who name backends know what runs there."""
    need = requested_resources(request)
    if work.gpu is not GpuNeed.NONE and not need.gpus:
        work = replace(work, need=need, gpu=GpuNeed.OPTIONAL, on_gpus=GpuMemory())
    return replace(work, model_bytes=0, host=HostMemory())


def _all_can_hold(plan: Plan, names: Sequence[str]) -> bool:
    """Return whether each of these backends has an offer that holds what was read from the program."""
    return {one.offer.backend for one in (*plan.ranked, *plan.unconnected)}.issuperset(names)


def _check_named(named: Sequence[str], allowed: Sequence[str]) -> None:
    barred = [name for name in named if allowed and name not in allowed]
    if barred:
        raise BadInput(
            f"The job is to run on {barred[0]}, but only {' or '.join(allowed)} may run it.",
            fix="Allow that backend too, or leave out one of the two options.",
        )


def _in_named_order(ranked: Sequence[RankedOffer], names: Sequence[str]) -> list[RankedOffer]:
    """Return the offers in the order of the named backends; those on demand instead of spot after all others."""
    return sorted(ranked, key=lambda one: (one.is_fallback, names.index(one.offer.backend) if names else 0))


def _on_demand_instead(
    target: RankedOffer | None, offers: Sequence[RankedOffer], request: PlanRequest
) -> list[RankedOffer]:
    """Return the on-demand offers of the job's backends, if its target is spot and it may fall back to them."""
    if target is None or not _is_paid(target, Market.SPOT) or not request.may_fall_back:
        return []
    names = request.named_backends or (target.offer.backend,)
    return [one for one in offers if _is_paid(one, Market.ON_DEMAND) and one.offer.backend in names]


def _is_paid(one: RankedOffer, market: Market) -> bool:
    return one.offer.rate > 0 and one.offer.market is market
