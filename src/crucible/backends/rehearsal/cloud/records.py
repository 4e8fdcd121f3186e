"""Instances as the cloud remembers them, and what time will do to each."""

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
    """What becomes of an instance whose user data has come to its end."""

    TERMINATE = "terminate"
    RUN_ON = "run_on"


class Step(enum.StrEnum):
    """What comes next for an instance by time alone."""

    BOOT = "boot"
    RECLAIM = "reclaim"
    EXPIRE = "expire"
    OFF = "off"


@dataclass(frozen=True)
class Instance:
    """Times are the cloud's. `n`: the order of creation; `wish`: the hash of all parameters but the token."""

    id: str
    zone: str
    type: str
    market: Market
    tags: Mapping[str, str]
    created_at: float
    boot_at: float
    wish: str
    secret: str = field(repr=False)
    """Names the instance on the metadata address."""
    token: str = ""
    on_exit: OnExit = OnExit.TERMINATE
    state: State = State.PENDING
    cause: Cause = Cause.NONE
    running_at: float | None = None
    ends_at: float | None = None
    """The maximum duration is over then."""
    notice_at: float | None = None
    die_at: float | None = None
    """A reclaim takes it then, known on the metadata address from `notice_at` on."""
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
        """The next thing time does to it, and when."""
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
    """An instance as a list shows it: possibly as it was a while ago."""

    instance: Instance
    state: State
    cause: Cause


@dataclass(frozen=True)
class Segment:
    """Whole seconds of the cloud's time at one rate; `until` is None while it lasts."""

    since: int
    until: int | None
    rate: int
