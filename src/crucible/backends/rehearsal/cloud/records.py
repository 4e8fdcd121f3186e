"""The records of instances and their segments, and the next step that is due for an instance."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .catalogue import TYPES, ZONES, InstanceType, Item, Market


class State(enum.StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


ALIVE = (State.PENDING, State.RUNNING, State.SHUTTING_DOWN)


class Cause(enum.StrEnum):
    """Why an instance ended."""

    NONE = ""
    USER = "user_initiated"
    RECLAIM = "spot_reclaim"
    MAX_DURATION = "max_duration"
    SHUTDOWN = "instance_shutdown"
    FAILURE = "hardware_failure"
    OUTAGE = "zone_outage"
    BOOT = "boot_failed"


class OnExit(enum.StrEnum):
    """What happens to an instance when its user data ends."""

    TERMINATE = "terminate"
    RUN_ON = "run_on"


class Step(enum.StrEnum):
    """A step in the life of an instance that happens at a set time."""

    BOOT = "boot"
    RECLAIM = "reclaim"
    EXPIRE = "expire"
    OFF = "off"


@dataclass(frozen=True)
class Instance:
    """An instance. Times are the cloud's. `n`: order of creation; `wish`: hash of the parameters without the token."""

    id: str
    zone: str
    type: str
    market: Market
    tags: Mapping[str, str]
    created_at: float
    boot_at: float
    wish: str
    secret: str = field(repr=False)
    """The instance's path on the metadata service."""
    token: str = ""
    on_exit: OnExit = OnExit.TERMINATE
    state: State = State.PENDING
    cause: Cause = Cause.NONE
    running_at: float | None = None
    ends_at: float | None = None
    """When its maximum duration is over."""
    notice_at: float | None = None
    die_at: float | None = None
    """When it is reclaimed; the metadata service shows that from `notice_at` on."""
    off_at: float | None = None
    ended_at: float | None = None
    pid: int | None = None
    started: str = ""
    n: int = 0

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def kind(self) -> InstanceType:
        return TYPES[self.type]

    @property
    def region(self) -> str:
        return ZONES[self.zone].region

    @property
    def item(self) -> Item:
        return Item(self.zone, self.type, self.market)

    @property
    def next(self) -> tuple[float, Step] | None:
        """The next due step and its time, or None."""
        return min(self._steps(), default=None)

    def _steps(self) -> Iterator[tuple[float, Step]]:
        if self.state is State.SHUTTING_DOWN and self.off_at is not None:
            yield self.off_at, Step.OFF
        if self.state is State.PENDING:
            yield self.boot_at, Step.BOOT
        if self.state in (State.PENDING, State.RUNNING):
            if self.die_at is not None:
                yield self.die_at, Step.RECLAIM
            if self.ends_at is not None:
                yield self.ends_at, Step.EXPIRE


@dataclass(frozen=True)
class ListedInstance:
    """An instance as a list shows it, possibly in an earlier state."""

    instance: Instance
    state: State
    cause: Cause


@dataclass(frozen=True)
class Segment:
    """A period at one rate, in whole seconds of the cloud's time. `until`: None while it lasts."""

    since: int
    until: int | None
    rate: int
