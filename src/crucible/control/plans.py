"""Plans: where a job would run, what that costs, and the exact call that would be sent. Changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from crucible.backends.base import MachineOrder, Slots
from crucible.catalog import PROVIDERS
from crucible.control import planviews
from crucible.control.elsewhere import Foreign
from crucible.control.forecasts import Forecast, Forecasts
from crucible.control.orders import Orders
from crucible.control.places import Place, Places
from crucible.control.ports import Calls
from crucible.control.predictions import Lessons, accuracy_view
from crucible.control.profiles import Profiles
from crucible.control.questions import Question
from crucible.control.resources.catalog import Catalog, ages
from crucible.control.views import View, iso
from crucible.core import budget, offer_choice
from crucible.core.errors import BadInput, UnknownName
from crucible.core.offers import Offer
from crucible.core.planask import PlanAsk
from crucible.core.pricing import Segment, machine_cost
from crucible.core.profile import Profile
from crucible.core.resources import MIN_MEMORY
from crucible.core.routing.estimate import duration
from crucible.core.routing.experience import Experience, Like
from crucible.core.routing.knowledge import DataSheets
from crucible.core.routing.learned import Learned, gpu_used
from crucible.core.routing.plan import Plan, Ranked, route
from crucible.core.routing.work import Work
from crucible.core.tiers import effective

LANE = "planning"
SECONDS = 30.0


@dataclass(frozen=True)
class Memory:
    """What is known of jobs that have ended, and how that is told which was said of those to come."""

    lessons: Lessons
    forecasts: Forecasts


@dataclass(frozen=True)
class _Routed:
    """`offers` are those that can run it, then those that could once they are connected; `best` is one of the first."""

    plain: Work
    """As the model tells it, without what past jobs taught."""
    work: Work
    learned: Learned
    found: Plan
    offers: list[Ranked]
    best: Ranked | None


class Plans:
    def __init__(
        self, places: Places, orders: Orders, deployment: str, prices: Catalog, calls: Calls, memory: Memory
    ) -> None:
        self._places = places
        self._orders = orders
        self._deployment = deployment
        self._prices = prices
        self._calls = calls
        self._memory = memory
        self._profiles = Profiles(calls)
        self._known = DataSheets()

    async def of(self, ask: PlanAsk, now: float, authority: Hashable = None) -> View:
        """Offers of every place, best first: those that can run it, then those that could once they are connected.

        `chosen` is what a submission with `job` added would be given now; None: nothing that is connected can run it,
        and `why` says so. Raises for an unknown place, tier or GPU type, and for wishes that contradict each other.
        `authority`: of the caller; what is cached of programs is cached for the same authority alone.
        """
        question = await self._understood(ask, authority)
        foreign = await self._prices.foreign()
        experience = await self._memory.lessons.known(now)
        return await self._calls.run(LANE, lambda: self._answer(question, foreign, experience, now), SECONDS)

    async def forecast(self, ask: PlanAsk, now: float) -> Forecast | None:
        """What a plan would say of how long it takes at the place that it names; None where nothing can be said."""
        question = await self._understood(ask)
        if not question.read:
            return None
        experience = await self._memory.lessons.known(now)
        return await self._calls.run(LANE, lambda: self._foretold(question, experience), SECONDS)

    async def _understood(self, ask: PlanAsk, authority: Hashable = None) -> Question:
        return self._question(ask, await self._profiles.of(ask.program, authority) if ask.program else None)

    def close(self) -> None:
        self._profiles.close()

    def _question(self, ask: PlanAsk, profile: Profile | None) -> Question:
        named = tuple(dict.fromkeys(name for name in (ask.backend, *ask.fallback) if name))
        for name in (*named, *ask.allowed_backends):
            if not self._places.has(name) and name not in PROVIDERS:
                known = {*self._places.names(), *PROVIDERS}
                raise UnknownName("backend", name, known, fix=self._places.how_to_connect(name))
        _check_named(named, ask.allowed_backends)
        need = effective(ask.tier, ask.resources)
        if ask.gpu_types and not need.gpus:
            need = need.model_copy(update={"gpus": 1})
        return Question(ask, need, profile, named)

    def _answer(self, question: Question, foreign: Foreign, experience: Experience, now: float) -> View:
        ask = question.ask
        routed = self._routed(question, () if ask.in_place else foreign.offers, experience)
        work, learned, found, both, best = routed.work, routed.learned, routed.found, routed.offers, routed.best
        chosen = None if best is None else self._chosen(best, question, now)
        told = self._forecast(question, routed)
        plan = None if told is None else self._memory.forecasts.id_of(told)
        usable = [name for name in self._places.names() if not self._cannot(ask, name)]
        waits = None if chosen else planviews.waiting(found, usable)
        shown = both if ask.every_region else planviews.best_of_each(both)
        return {
            "id": plan,
            **planviews.understood(question.profile, work),
            "hours_said": ask.hours is not None,
            "learned": planviews.learned(learned, experience.jobs, work, best) if question.read else None,
            "accuracy": accuracy_view(experience.accuracy),
            "chosen": chosen,
            "job": planviews.to_submit(chosen or waits, question, self._sizes(best, question, work), plan),
            "waits": waits is not None,
            "why": None if chosen else planviews.why_nothing(found, waits),
            "too_dear": not chosen and not waits and planviews.too_dear(found),
            "offers": [self._view(one, ask) for one in shown[: ask.limit]],
            "offers_count": len(both),
            "rejected": planviews.rejected(found, ask.limit),
            "rejected_count": len(found.rejected),
            "nearest": planviews.nearest(found),
            "prices": {**ages(foreign.stock), "note": planviews.age_note(foreign.stock)},
        }

    def _routed(self, question: Question, foreign: Iterable[Offer], experience: Experience) -> _Routed:
        plain = question.work()
        learned = Learned(self._known, experience, *question.alike)
        work = question.work(learned.of(plain.compute))
        known = learned if question.read else self._known
        offers = [*self._connected(question.ask), *foreign]
        found = route(work, question.wishes, offers, known)
        if not _hold(found, question.places):
            plain, work = question.yielding(plain), question.yielding(work)
            found = route(work, question.wishes, offers, known)
        ranked = _in_order(found.ranked, question.places)
        both = [learned.sure(one) if question.read else one for one in (*ranked, *found.elsewhere)]
        best = self._placed(both[: len(ranked)], question, work) if ranked else None
        return _Routed(plain, work, learned, found, both, best)

    def _foretold(self, question: Question, experience: Experience) -> Forecast | None:
        return self._forecast(question, self._routed(question, (), experience))

    def _forecast(self, question: Question, routed: _Routed) -> Forecast | None:
        """What is told here of how long it takes, where the model tells that of a machine that is real."""
        if routed.best is None:
            return None
        plain, offer, predicted = routed.plain, routed.best.offer, routed.best.estimate.seconds
        analytic, _ = duration(plain, offer, self._known)
        if not (question.read and analytic and predicted) or self._simulated(offer.backend):
            return None
        framework, script = question.alike
        like = Like(framework, gpu_used(plain, offer), script)
        return Forecast(like, offer.backend, offer.instance_type, analytic, predicted)

    def _connected(self, ask: PlanAsk) -> Iterator[Offer]:
        for name in self._places.names():
            for offer in self._places.offers(name):
                yield replace(offer, why_not=offer.why_not or self._cannot(ask, name))

    def _cannot(self, ask: PlanAsk, name: str) -> str:
        abilities = self._places.backend(name).capabilities
        if ask.in_place and not abilities.in_place:
            return f"{name} cannot run anything in place. Leave out --in-place"
        if abilities.simulated and name not in (ask.backend, *ask.fallback, *ask.allowed_backends):
            return f"{name} is simulated. To rehearse there: --backend {name}"
        return ""

    def _chosen(self, best: Ranked, question: Question, now: float) -> View:
        """With the call; its id stands for the one that it would get."""
        place = self._place(best.offer)
        life = self._life(place, question.ask)
        ends_at = None if life is None else now + life
        order = MachineOrder(self._orders.machine_id(), self._deployment, best.offer, ends_at)
        call = asdict(place.backend.call(order))
        return {**self._view(best, question.ask), "call": call, "ends_at": iso(ends_at)}

    def _placed(self, ranked: list[Ranked], question: Question, work: Work) -> Ranked:
        """At the best place the machine that its scheduler would ask for."""
        first = ranked[0]
        backend = self._places.backend(first.offer.backend)
        if backend.capabilities.slots is Slots.COUNTED:
            return first
        market = question.market or first.offer.market
        update = {"resources": work.need_on(first.offer.capacity), "market": market}
        spec = question.ask.model_copy(update=update)
        here = [one for one in ranked if one.offer.backend == backend.name]
        choice = offer_choice.choose(spec, [one.offer for one in here]).offer
        return next((one for one in here if one.offer is choice), first)

    def _sizes(self, best: Ranked | None, question: Question, work: Work) -> dict[str, int]:
        """What a submission says of its size to be given what is planned."""
        need = work.need if best is None else work.need_on(best.offer.capacity)
        gpus = {"gpus": need.gpus, "gpu_memory_bytes": need.gpu_memory_bytes or 0} if need.gpus else {}
        memory = 0 if best is None else self._memory_of(best.offer, question, work)
        return {name: size for name, size in {**gpus, "memory_bytes": memory}.items() if size}

    def _memory_of(self, offer: Offer, question: Question, work: Work) -> int:
        """What a machine that is made for the job must have. Where slots are counted it would be a limit, and an
        estimate is none: there, and where it may come to such a place, nothing is said. Nor where it takes whatever
        GPU there is: who asks for a size gets the GPUs that he asks for. Nor where only the least of it is known.
        """
        if work.host_is_least or len(question.places) > 1 or (offer.capacity.gpus and not work.need.gpus):
            return 0
        if self._places.backend(offer.backend).capabilities.slots is not Slots.ELASTIC:
            return 0
        return max(work.memory_on(offer.capacity), MIN_MEMORY) if work.host.total else 0

    def _view(self, one: Ranked, ask: PlanAsk) -> View:
        offer, simulated = one.offer, self._simulated(one.offer.backend)
        paid = budget.affordable_seconds(ask.max_cost_micros, offer)
        bounds = {"most_micros": self._most(offer, ask), "paid_seconds": paid}
        return {**planviews.ranked(one), "simulated": simulated, **bounds}

    def _most(self, offer: Offer, ask: PlanAsk) -> int | None:
        """What a machine of its own costs if it lives until its hard end; for one attempt."""
        if not self._places.has(offer.backend):
            return None
        life = self._life(self._place(offer), ask)
        if life is None:
            return None if offer.rate else 0
        return machine_cost([Segment(0.0, life, offer.rate)], offer.billing, life)

    def _life(self, place: Place, ask: PlanAsk) -> float | None:
        """How long its machine lives at most; None for one that several jobs share."""
        if place.backend.capabilities.shared_machines:
            return None
        need = budget.capped(effective(ask.tier, ask.resources), ask.max_cost_micros, place.offer)
        return self._orders.life(place, need, ask.grace_seconds)

    def _simulated(self, name: str) -> bool:
        return self._places.has(name) and self._places.backend(name).capabilities.simulated

    def _place(self, offer: Offer) -> Place:
        return Place(self._places.backend(offer.backend), offer)


def _hold(found: Plan, places: Sequence[str]) -> bool:
    """Whether each of the named places has something that holds what was read of the program."""
    return {one.offer.backend for one in (*found.ranked, *found.elsewhere)}.issuperset(places)


def _check_named(named: Sequence[str], allowed: Sequence[str]) -> None:
    barred = [name for name in named if allowed and name not in allowed]
    if barred:
        raise BadInput(
            f"It is to run on {barred[0]}, and only {' or '.join(allowed)} may run it.",
            fix="Allow that place too, or leave one of the two wishes out.",
        )


def _in_order(ranked: Sequence[Ranked], places: Sequence[str]) -> list[Ranked]:
    """Of named places those of the first one first."""
    return sorted(ranked, key=lambda one: places.index(one.offer.backend) if places else 0)
