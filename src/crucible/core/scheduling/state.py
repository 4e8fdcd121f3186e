"""The scheduler's input (`State`) and its decisions (`Start`, `Wait`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crucible.core.compute.offers import Market, Need, Nodes, Offer, OnDemand, ProviderQueue
from crucible.core.compute.resources import Allocation
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling.candidates import Candidate
from crucible.core.scheduling.slots import UsedSlots


@dataclass(frozen=True)
class OfferKind:
    """The kind of machine that an offer is for. A failure of one offer counts for all offers of its kind."""

    backend: str
    region: str
    instance_type: str
    market: Market

    @classmethod
    def from_offer(cls, offer: Offer) -> OfferKind:
        return cls(offer.backend, offer.region, offer.instance_type, offer.market)


@dataclass(frozen=True)
class Failures:
    """How often one kind of offer has failed a job lately. `retry_at`: when the job may try it again."""

    count: int
    retry_at: float = 0.0


@dataclass(frozen=True)
class WaitingJob:
    """A queued job. `spec` has its effective resources, `version` is that of its row.

    `waiting` is what it says it waits for. `failures` are by kind of offer. `lost` counts, by backend, the attempts
    that ended because the backend lost or reclaimed the machine.
    """

    id: str
    version: int
    spec: JobSpec
    candidates: tuple[Candidate, ...]
    user: str = ""
    waiting: str = ""
    ranks: int = 1
    failures: Mapping[OfferKind, Failures] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)

    @property
    def need(self) -> Need:
        """What backends are asked offers for."""
        spec = self.spec
        resources = spec.resources.model_copy(update={"seconds": None})
        markets = tuple(dict.fromkeys(candidate.market for candidate in self.candidates))
        return Need(resources, spec.gpu_types, spec.regions, markets)


@dataclass(frozen=True)
class Supply:
    """What a connected backend can give now."""

    capacity: Nodes | OnDemand | ProviderQueue
    offers: Mapping[Need, tuple[Offer, ...]]
    """By need. Those of nodes are the same for every need, under `Need()`."""
    unanswered: frozenset[Need] = frozenset()
    """Needs for which the last request got no answer."""
    queued: int = 0
    """Number of our machines in the provider's own queue."""
    ending: frozenset[str] = frozenset()
    """Nodes on which a machine of this backend is still ending."""
    unreachable: str = ""
    """Why agents there cannot reach this server; empty if they can."""
    unreachable_with_secrets: str = ""
    """The same for a job with secrets."""
    in_place: bool = False
    may_see_paths: bool = True
    """Whether paths of the submitting computer may exist there."""

    def offers_for(self, need: Need) -> tuple[Offer, ...] | None:
        """Return the offers for this need; None if the backend has not reported them yet."""
        return self.offers.get(self._key(need))

    def is_pending(self, need: Need) -> bool:
        """Return whether the first request for this need has not been answered or failed yet."""
        key = self._key(need)
        return key not in self.offers and key not in self.unanswered

    def _key(self, need: Need) -> Need:
        return Need() if isinstance(self.capacity, Nodes) else need


@dataclass(frozen=True)
class State:
    """`jobs` are the first of the queue, in order of arrival. `used`: the slots in use, by node."""

    jobs: tuple[WaitingJob, ...]
    backends: Mapping[str, Supply]
    used: Mapping[str, tuple[UsedSlots, ...]] = field(default_factory=dict)
    now: float = 0.0


@dataclass(frozen=True)
class Grant:
    """What one rank of an attempt gets: an offer, and the slots of it."""

    offer: Offer
    allocation: Allocation


@dataclass(frozen=True)
class Start:
    """The job starts, with a grant for each rank. `passed_over`: why a better candidate was not taken, if one was."""

    job: str
    version: int
    grants: tuple[Grant, ...]
    passed_over: str = ""


@dataclass(frozen=True)
class Wait:
    """The job waits. `until`: when to decide again at the latest, if time alone changes something."""

    job: str
    version: int
    why: str
    until: float | None = None
