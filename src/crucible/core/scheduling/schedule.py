"""`schedule`: decide for each waiting job whether and on what it starts, or why it waits.

Whichever candidate has room first takes the job. A job that waits holds back later ones only from the nodes that could
hold it, so that small jobs never starve a large one. Backends that make machines hold nobody back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crucible.core.compute.offers import Nodes, Offer, ProviderQueue
from crucible.core.ids import short
from crucible.core.scheduling import fit
from crucible.core.scheduling.candidates import Candidate, backends_of
from crucible.core.scheduling.slots import NodeSlots, UsedSlots, allocate, why_full
from crucible.core.scheduling.state import Failures, Grant, OfferKind, Start, State, Supply, Wait, WaitingJob

_NEVER_FAILED = Failures(0)


def schedule(state: State) -> list[Start | Wait]:
    """Return a decision for each job that starts or has to wait, in the order in which the jobs get their turns.

    A job that only waits behind others gets none.
    """
    round_ = _Round(state)
    decisions = (round_.decide(job) for job in order_by_priority(state.jobs))
    return [decision for decision in decisions if decision is not None]


def order_by_priority(queue: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return the queue in order of arrival, with each user's turns reassigned to their jobs by priority.

    Only jobs of one user trade turns, across projects: the turns of other users do not change.
    """
    own: dict[str, list[WaitingJob]] = {}
    for job in queue:
        own.setdefault(job.user, []).append(job)
    turns = {user: iter(sorted(jobs, key=lambda job: -job.spec.priority)) for user, jobs in own.items()}
    return [next(turns[job.user]) for job in queue]


def why_not_connected(backends: Sequence[str]) -> str:
    """Return why a job waits none of whose backends is connected."""
    return f"waits for {' or '.join(backends)}, which is not connected"


@dataclass(frozen=True)
class _Option:
    """One way to start a job, with its rank among all: the lowest is the best."""

    rank: tuple[float, ...]
    candidate: Candidate
    grants: tuple[Grant, ...]


@dataclass
class _Obstacles:
    """Why a job cannot start now."""

    reasons: dict[str, str] = field(default_factory=dict)
    """By backend, the best one of each."""
    behind_others: set[str] = field(default_factory=set)
    """Backends on whose nodes other jobs are ahead of it."""
    until: float | None = None
    """When the first pause of a kind of offer ends."""

    def add(self, backend: str, why: str) -> None:
        self.reasons.setdefault(backend, why)

    def add_pause(self, retry_at: float) -> None:
        self.until = retry_at if self.until is None else min(self.until, retry_at)

    def text(self) -> str:
        """Return the reasons as one text; several backends are named."""
        if len(self.reasons) == 1:
            return next(iter(self.reasons.values()))
        return "; ".join(f"{backend}: {why}" for backend, why in self.reasons.items())


class _Round:
    """Decides for one job after the other, and keeps what the decisions so far leave for the next jobs."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._used = dict(state.used)
        self._queued = {name: supply.queued for name, supply in state.backends.items()}
        self._reserved: set[str] = set()
        """Nodes for which a job ahead waits."""

    def decide(self, job: WaitingJob) -> Start | Wait | None:
        obstacles = _Obstacles()
        options: list[_Option] = []
        for index, candidate in enumerate(job.candidates):
            options += self._options(job, index, candidate, obstacles)
            supply = self._state.backends.get(candidate.backend)
            if supply is None or _why_excluded(job, candidate.backend, supply):
                continue
            if supply.is_pending(job.need):
                break  # its answer is due at once, and the user prefers it to those behind
        if options:
            best = min(options, key=lambda option: option.rank)
            self._take(job, best)
            return Start(job.id, job.version, best.grants, _passed_over(job, best, obstacles))
        self._reserved |= set(self._nodes_that_could_hold(job))
        if not obstacles.reasons and obstacles.behind_others:
            return None
        return Wait(job.id, job.version, obstacles.text(), obstacles.until)

    def _take(self, job: WaitingJob, option: _Option) -> None:
        name = option.candidate.backend
        if isinstance(self._state.backends[name].capacity, ProviderQueue):
            self._queued[name] += len(option.grants)
        for grant in option.grants:
            if grant.offer.node is not None:
                node = grant.offer.node.id
                self._used[node] = (*self._used.get(node, ()), UsedSlots(short(job.id), grant.allocation))

    def _options(self, job: WaitingJob, index: int, candidate: Candidate, obstacles: _Obstacles) -> Iterator[_Option]:
        """Yield the ways in which this candidate could start the job now, and note what is in the way of others."""
        name = candidate.backend
        supply = self._state.backends.get(name)
        if supply is None:
            return obstacles.add(name, why_not_connected([name]))
        if why := _why_excluded(job, name, supply):
            return obstacles.add(name, why)
        offers = supply.offers_for(job.need)
        if offers is None:
            return obstacles.add(name, f"{name} has not reported its offers yet")
        fitting = _fitting(job, candidate, offers)
        if not fitting:
            whys = [fit.why_never(job.spec, offer, candidate.market) for offer in offers]
            return obstacles.add(name, _no_offer(supply, name, next(iter(whys), "there are no offers at the moment")))
        if _needs_more_nodes(job, supply, fitting):
            return obstacles.add(name, f"wants {job.ranks} nodes; {name} has {len(fitting)} that could hold it")
        if isinstance(supply.capacity, Nodes):
            yield from self._on_nodes(job, index, candidate, fitting, obstacles)
        else:
            yield from self._on_new_machines(job, index, candidate, fitting, obstacles)

    def _on_nodes(
        self, job: WaitingJob, index: int, candidate: Candidate, offers: dict[int, Offer], obstacles: _Obstacles
    ) -> Iterator[_Option]:
        """Yield an option for each node with room; for a gang one option, with as many nodes as it has ranks."""
        found, why = self._nodes_with_room(job, index, candidate, offers, obstacles)
        if job.ranks > 1 and len(found) < job.ranks:
            if found or why:
                why = f"waits for {job.ranks} nodes at once: there is room on {len(found)}"
            found = []
        elif job.ranks > 1:
            chosen = sorted(found, key=lambda option: option.rank)[: job.ranks]
            found = [_Option(chosen[-1].rank, candidate, tuple(one.grants[0] for one in chosen))]
        if why:
            obstacles.add(candidate.backend, why)
        yield from found

    def _nodes_with_room(
        self, job: WaitingJob, index: int, candidate: Candidate, offers: dict[int, Offer], obstacles: _Obstacles
    ) -> tuple[list[_Option], str]:
        """Return an option for each node on which one rank could start now, and why the first other one cannot."""
        name, found, why, paused = candidate.backend, list[_Option](), "", ""
        for position, offer in offers.items():
            assert offer.node is not None, "an offer of a backend with nodes names its node"
            if offer.node.id in self._reserved:
                obstacles.behind_others.add(name)
                continue
            slots = NodeSlots.from_offer(offer, offer.node, self._used.get(offer.node.id, ()))
            allocation = allocate(job.spec.resources, slots)
            if offer.why_not or offer.node.id in self._state.backends[name].ending:
                why = why or offer.why_not or f"waits until the last agent on {offer.instance_type} has ended"
            elif allocation is None:
                full = why_full(job.spec.resources, slots)
                why = why or (full if len(offers) == 1 else f"{offer.node.name} {full}")
            elif self._pauses(job, offer, obstacles):
                paused = paused or f"tries again soon: {offer.instance_type} could not start it"
            else:
                rank = _rank(job, index, offer, position)
                found.append(_Option(rank, candidate, (Grant(offer, allocation),)))
        return found, why or paused

    def _on_new_machines(
        self, job: WaitingJob, index: int, candidate: Candidate, offers: dict[int, Offer], obstacles: _Obstacles
    ) -> Iterator[_Option]:
        """Yield an option for each offer of which a machine can be made for each rank."""
        name = candidate.backend
        capacity = self._state.backends[name].capacity
        if isinstance(capacity, ProviderQueue) and self._queued[name] >= capacity.limit:
            return obstacles.add(name, f"waits for its turn: {self._queued[name]} of our machines queue on {name}")
        available = {position: offer for position, offer in offers.items() if not offer.why_not}
        if not available:
            first = next(iter(offers.values()))
            return obstacles.add(
                name, f"waits for a machine on {name}: {first.why_not}{fit.spot_hint(job.spec, first)}"
            )
        tried = {n: offer for n, offer in available.items() if not self._pauses(job, offer, obstacles)}
        if not tried:
            why = f"waits for a machine on {name}: all {len(available)} offers that fit have failed it; it tries again"
            return obstacles.add(name, why + fit.spot_hint(job.spec, next(iter(available.values()))))
        for position, offer in tried.items():
            grant = Grant(offer, fit.allocate_whole_machine(job.spec, offer))
            yield _Option(_rank(job, index, offer, position), candidate, (grant,) * job.ranks)

    def _pauses(self, job: WaitingJob, offer: Offer, obstacles: _Obstacles) -> bool:
        """Return whether the job must not try this kind of offer again yet."""
        retry_at = self._retry_at(job, offer)
        if retry_at is not None:
            obstacles.add_pause(retry_at)
        return retry_at is not None

    def _retry_at(self, job: WaitingJob, offer: Offer) -> float | None:
        """Return when the job may try this kind of offer again; None if it may now."""
        retry_at = job.failures.get(OfferKind.from_offer(offer), _NEVER_FAILED).retry_at
        return retry_at if retry_at > self._state.now else None

    def _nodes_that_could_hold(self, job: WaitingJob) -> Iterator[str]:
        """Yield the nodes that could hold the job, except those that it must not try again yet."""
        for candidate in job.candidates:
            supply = self._state.backends.get(candidate.backend)
            if supply is None or _why_excluded(job, candidate.backend, supply):
                continue
            fitting = _fitting(job, candidate, supply.offers_for(job.need) or ())
            if not _needs_more_nodes(job, supply, fitting):
                for offer in fitting.values():
                    if offer.node is not None and self._retry_at(job, offer) is None:
                        yield offer.node.id


def _fitting(job: WaitingJob, candidate: Candidate, offers: Sequence[Offer]) -> dict[int, Offer]:
    """Return the offers that could hold the job, by position; a node that is offered several times counts once."""
    fitting: dict[int, Offer] = {}
    seen: set[str] = set()
    for position, offer in enumerate(offers):
        node = offer.node.id if offer.node else None
        if node not in seen and not fit.why_never(job.spec, offer, candidate.market):
            fitting[position] = offer
            seen |= {node} if node else set()
    return fitting


def _needs_more_nodes(job: WaitingJob, supply: Supply, fitting: Mapping[int, Offer]) -> bool:
    return isinstance(supply.capacity, Nodes) and len(fitting) < job.ranks


def _why_excluded(job: WaitingJob, name: str, supply: Supply) -> str:
    """Return why no machine of this backend can run the job, whatever it offers; empty if one may."""
    lacking = fit.why_no_files(job.spec, name, in_place=supply.in_place, may_see_paths=supply.may_see_paths)
    if lacking:
        return lacking
    return supply.unreachable_with_secrets if job.spec.secrets else supply.unreachable


def _no_offer(supply: Supply, name: str, why: str) -> str:
    return why if isinstance(supply.capacity, Nodes) else f"waits for a machine on {name}: {why}"


def _rank(job: WaitingJob, index: int, offer: Offer, position: int) -> tuple[float, ...]:
    """Rank what has failed the job least first, then the user's order of candidates, then the price."""
    failed = job.failures.get(OfferKind.from_offer(offer), _NEVER_FAILED).count
    return (failed, job.lost.get(offer.backend, 0), index, offer.rate, offer.startup_seconds, position)


def _passed_over(job: WaitingJob, best: _Option, obstacles: _Obstacles) -> str:
    """Return why a backend that the user prefers to the chosen one was not taken; empty if there is none."""
    for name in backends_of(job.candidates):
        if name == best.candidate.backend:
            return ""
        if name in obstacles.reasons:
            return f"{name}: {obstacles.reasons[name]}"
        if job.lost.get(name, 0):
            return f"{name} lost the machine of an earlier attempt"
        if name in obstacles.behind_others:
            return f"others are ahead of it on {name}"
        return f"{name} failed an earlier attempt"
    return ""
