"""The frozen values that `advance` works on; `dataclasses.replace` makes the next one."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crucible.core.compute.offers import Billing, Market
from crucible.core.compute.resources import Allocation, Capacity, Resources
from crucible.core.job.spec import DEFAULT_BACKEND, JobSpec
from crucible.core.job.states import AttemptState, Condition, DesiredState, JobState, MachineState
from crucible.core.lifecycle.reasons import Reason, Retry
from crucible.core.people.identity import DEFAULT_PROJECT
from crucible.core.scheduling.candidates import Candidate


@dataclass(frozen=True)
class Job:
    """A job. `due_at` is when the sweep checks it next; None: only a message can change it.

    `candidates` are the ways in which it may run; `backend` is where it runs, ran last, or would run best.
    `attempts_before_reopen`: how many attempts it had when it was last reopened; `resume_from`: the checkpoint chosen
    then. `checkpoint` counts the requested checkpoints.
    """

    id: str
    spec: JobSpec
    resources: Resources
    created_at: float
    project: str = DEFAULT_PROJECT
    user: str = ""
    version: int = 0
    generation: int = 1
    state: JobState = JobState.PENDING
    desired: DesiredState = DesiredState.RUN
    reason: Reason | None = None
    detail: str = ""
    waiting: str = ""
    placement: str = ""
    conditions: frozenset[Condition] = frozenset()
    used: Mapping[Retry, int] = field(default_factory=dict)
    attempts: int = 0
    events: int = 0
    exit_code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    not_before: float = 0.0
    due_at: float | None = None
    backend: str = DEFAULT_BACKEND
    candidates: tuple[Candidate, ...] = ()
    resume_from: str | None = None
    attempts_before_reopen: int = 0
    checkpoint: int = 0


@dataclass(frozen=True)
class Slot:
    """One rank of an attempt on a machine. `ended`: its runner reported its end, or cannot be running any more.

    `reason`: why its program ended, once its runner has reported that.
    """

    rank: int
    machine: str
    allocation: Allocation
    ended: bool = False
    reason: Reason | None = None


@dataclass(frozen=True)
class Attempt:
    """One run of a job, on one machine or on the machines of a gang. `number` counts from 1.

    `generation` is the job's when the attempt was placed. `exited_at` is when its program ended; `ended_at` is later,
    because outputs are stored in between. `noticed_at` is when an interruption of its machine was announced;
    `stopping_since`, when it was asked to stop without its job; `resume_from`, the checkpoint that it started from.
    """

    id: str
    job: str
    number: int
    generation: int
    backend: str
    slots: tuple[Slot, ...]
    placed_at: float
    state: AttemptState = AttemptState.PLACED
    reason: Reason | None = None
    detail: str = ""
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None
    started_at: float | None = None
    exited_at: float | None = None
    ended_at: float | None = None
    last_seen: float | None = None
    resume_from: str | None = None
    noticed_at: float | None = None
    stopping_since: float | None = None

    @property
    def live(self) -> bool:
        return self.state is not AttemptState.ENDED

    @property
    def is_gang(self) -> bool:
        """Whether it has several ranks, which run and end together."""
        return len(self.slots) > 1


@dataclass(frozen=True)
class Machine:
    """A machine of a provider, from the decision to launch it until it is gone."""

    id: str
    backend: str
    owner: str
    """`attempt:<id>`, or `pool:<backend>` if several attempts share it."""
    call: str
    """The LaunchCall as JSON, opaque here."""
    rate: int
    created_at: float
    launch_deadline: float
    """Until then, a launch that was sent may still make the machine."""
    capacity: Capacity
    instance_type: str = ""
    region: str = ""
    market: Market = Market.ON_DEMAND
    node: str = ""
    """The id of the computer whose slots it shares out."""
    gang: str | None = None
    """The machine whose launch call makes this one too."""
    simulated: bool = False
    lease_seconds: float | None = None
    """How long its agent continues without contact; None: without limit."""
    host_due: float | None = None
    """The deadline of its host's first contact. None until it starts, if its provider may let it wait."""
    host_seconds: float | None = None
    """Seconds from its start to `host_due`."""
    life_seconds: float | None = None
    """Seconds from its start to `ends_at`."""
    billing: Billing = Billing()
    bills: bool = True
    version: int = 0
    state: MachineState = MachineState.INTENDED
    native_id: str | None = None
    claimed_by: str | None = None
    """The provider's id that the host named when it claimed the machine."""
    launch_settled: bool = False
    """The launch was answered or definitely refused, or its deadline passed and two finds by token came back empty.
    Before that, an absent machine proves nothing."""
    empty_finds: int = 0
    settle_window: float = 0.0
    gone_sightings: int = 0
    gone_since: float | None = None
    interrupted: bool = False
    detail: str = ""
    launched_at: float | None = None
    """When its launch was first sent."""
    queued_at: float | None = None
    """Since when it waits in its provider's own queue."""
    started_at: float | None = None
    """When its clocks started: the provider's time, or the first sign that it runs."""
    up_at: float | None = None
    gone_at: float | None = None
    ends_at: float | None = None
    """The end of its maximum runtime. None until it starts, if its provider may let it wait."""
    last_seen: float | None = None
    withdrawing: bool = False

    @property
    def alive(self) -> bool:
        return self.state is not MachineState.GONE

    @property
    def is_billed(self) -> bool:
        """Whether it costs money now; one that waits at its provider does not."""
        return self.bills and self.alive and self.started_at is not None

    def belongs_to(self, attempt: Attempt) -> bool:
        """Return whether the machine was made for this attempt alone."""
        return self.owner == f"attempt:{attempt.id}"

    @property
    def may_queue(self) -> bool:
        """Whether its provider lets it wait, or did, so that its clocks run from its start."""
        return self.started_at is None or self.queued_at is not None

    @property
    def wanted(self) -> bool:
        """Whether the machine should exist, or be made: it is not being released."""
        return self.state in USABLE


USABLE = frozenset({MachineState.INTENDED, MachineState.CREATING, MachineState.QUEUED, MachineState.UP})
"""The states of machines that are not being released."""


class EffectKind(enum.StrEnum):
    LAUNCH = "launch"
    WITHDRAW = "withdraw"
    TERMINATE = "terminate"


@dataclass(frozen=True)
class Effect:
    """An action on a provider, performed after the commit. Effects of one machine are performed in order."""

    kind: EffectKind
    machine: str


@dataclass(frozen=True)
class Event:
    """Something that happened to the job, for users and programs. Numbered per job when it is stored."""

    type: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """One job with its attempts and the machines they occupy."""

    job: Job
    attempts: tuple[Attempt, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)

    @property
    def live(self) -> Attempt | None:
        """The live attempt; the rules allow at most one."""
        return next((a for a in reversed(self.attempts) if a.live), None)

    def held(self, attempt: Attempt) -> list[Machine]:
        """Return the machines on which the attempt's runners may still run."""
        names = dict.fromkeys(slot.machine for slot in attempt.slots if not slot.ended)
        return [self.machines[name] for name in names if name in self.machines]

    def with_job(self, **changes: object) -> World:
        return replace(self, job=replace(self.job, **changes))  # type: ignore[arg-type]

    def with_attempt(self, attempt: Attempt) -> World:
        others = tuple(a for a in self.attempts if a.id != attempt.id)
        return replace(self, attempts=tuple(sorted((*others, attempt), key=lambda a: a.number)))

    def with_machine(self, machine: Machine) -> World:
        return World(self.job, self.attempts, {**self.machines, machine.id: machine})


@dataclass(frozen=True)
class Step:
    """The result of `advance`. `touched`: machines whose desired document changed."""

    world: World
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    touched: frozenset[str] = frozenset()

    def then(self, other: Step) -> Step:
        """Return both steps as one. `other` must have begun with this step's world."""
        return Step(
            other.world,
            self.events + other.events,
            self.effects + other.effects,
            self.touched | other.touched,
        )
