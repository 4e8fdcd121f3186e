"""What a job needs and what its user prefers, as the Python client takes it: checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar, cast

from crucible.client.request.checks import check_names, check_number, check_text, invalid_value
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import MAX_CPUS, MAX_GPUS, MAX_MEMORY, MAX_SECONDS, GiB
from crucible.core.compute.tiers import get_tier
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import MAX_USD
from crucible.core.routing.plan_request import Objective

T = TypeVar("T")

MAX_GB = MAX_MEMORY // GiB
MAX_HOURS = MAX_SECONDS / 3600
FREQUENCY = "CHECKPOINT_FREQUENCY_MINUTES"
"""The variable by which a program hears how often it was asked to save."""


@dataclass(frozen=True)
class Requirements:
    """What a job needs. None: not said, and nothing is required.

    `gpu_memory_gb` asks for a GPU with so much memory of its own (`gpus` of them: 1 unless said), `memory_gb` for
    the computer's. `interruptible` allows machines that the place may take back (spot): the job then goes on
    elsewhere from its newest checkpoint. `duration_hours_estimated` is what costs are computed from;
    `time_limit_hours` ends each try that takes longer.
    `max_cost_usd` leaves out places where that duration would cost more; where machines bill, a try is ended when it
    is spent.
    `checkpoint_frequency_minutes` is told to the program as $CHECKPOINT_FREQUENCY_MINUTES: saving is its own doing.
    """

    gpu_memory_gb: float | None = None
    duration_hours_estimated: float | None = None
    checkpoint_frequency_minutes: float | None = None
    interruptible: bool = False
    max_cost_usd: float | None = None
    gpus: int | None = None
    cpus: float | None = None
    memory_gb: float | None = None
    time_limit_hours: float | None = None
    tier: str | None = None

    def __post_init__(self) -> None:
        check_number("gpu_memory_gb", self.gpu_memory_gb, 0, MAX_GB)
        check_number("duration_hours_estimated", self.duration_hours_estimated, 0, MAX_HOURS, above=True)
        check_number("checkpoint_frequency_minutes", self.checkpoint_frequency_minutes, 0, MAX_HOURS * 60, above=True)
        check_number("max_cost_usd", self.max_cost_usd, 0, MAX_USD)
        check_number("gpus", self.gpus, 0, MAX_GPUS, whole=True)
        check_number("cpus", self.cpus, 0.01, MAX_CPUS)
        check_number("memory_gb", self.memory_gb, 1 / 64, MAX_GB)
        check_number("time_limit_hours", self.time_limit_hours, 1 / 3600, MAX_HOURS)
        if not isinstance(self.interruptible, bool):
            raise invalid_value("interruptible", self.interruptible, "is True or False")
        if self.tier is not None:
            get_tier(check_text("tier", self.tier))
        self._contradictions()

    def _contradictions(self) -> None:
        if self.gpus == 0 and self.gpu_memory_gb:
            raise BadInput(
                "gpu_memory_gb and gpus=0 contradict each other.",
                fix="Leave out gpus, or ask for at least one.",
                field="gpus",
            )
        limit, estimate = self.time_limit_hours, self.duration_hours_estimated
        if limit is not None and estimate is not None and limit < estimate:
            raise BadInput(
                "time_limit_hours is less than duration_hours_estimated.",
                why=f"A job that takes {estimate:g} hours would be ended after {limit:g}.",
                fix="Raise time_limit_hours, or lower the estimate.",
                field="time_limit_hours",
            )

    @classmethod
    def of(cls, said: object) -> Requirements:
        """These, or the same as a mapping; a name that is none is told with the nearest one."""
        if said is None:
            return cls()
        if isinstance(said, cls):
            return said
        if not isinstance(said, Mapping):
            raise invalid_value("requirements", said, "is a Requirements(...)")
        return cls(**_known(said, "requirement", [field.name for field in fields(cls)]))

    def fields(self) -> dict[str, object]:
        """As a partial job; what is not said is left out."""
        resources = {
            "cpus": self.cpus,
            "memory_bytes": _bytes(self.memory_gb),
            "gpus": self.gpus if self.gpus is not None else (1 if self.gpu_memory_gb else None),
            "gpu_memory_bytes": _bytes(self.gpu_memory_gb),
            "seconds": self.time_limit_hours * 3600 if self.time_limit_hours is not None else None,
        }
        often = self.checkpoint_frequency_minutes
        return _said(
            resources=_said(**resources),
            market=Market.SPOT if self.interruptible else None,
            tier=self.tier,
            max_cost_usd=self.max_cost_usd,
            env={} if often is None else {FREQUENCY: f"{often:g}"},
        )

    def goal(self) -> dict[str, object]:
        """As a partial goal."""
        return _said(hours=self.duration_hours_estimated, interruptible=self.interruptible or None)


@dataclass(frozen=True)
class Preferences:
    """What places are put in order by. `allowed_backends` None: all that the server is connected to.

    `deadline_hours`: within which it is to be done; what would take longer is recommended to nobody.
    """

    optimize_for: Objective = Objective.COST
    allowed_backends: tuple[str, ...] | None = None
    deadline_hours: float | None = None

    @classmethod
    def of(cls, said: object) -> Preferences:
        if said is None:
            return cls()
        if isinstance(said, cls):
            return said
        if not isinstance(said, Mapping):
            raise invalid_value("preferences", said, "is a table such as {'optimize_for': 'cost'}")
        known = _known(said, "preference", [field.name for field in fields(cls)])
        aim = known.get("optimize_for")
        return cls(
            optimize_for=Objective.COST if aim is None else _aim(aim),
            allowed_backends=check_names("allowed_backends", known.get("allowed_backends")),
            deadline_hours=_hours("deadline_hours", known.get("deadline_hours")),
        )

    def goal(self) -> dict[str, object]:
        """As a partial goal."""
        return _said(
            optimize=self.optimize_for, deadline_hours=self.deadline_hours, allowed_backends=self.allowed_backends
        )


def _said(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _hours(name: str, said: object) -> float | None:
    check_number(name, said, 0, MAX_HOURS, above=True)
    return cast(float | None, said)


def _aim(said: object) -> Objective:
    try:
        return Objective(check_text("optimize_for", getattr(said, "value", said)).lower())
    except ValueError:
        raise UnknownName("aim to optimize_for", str(said), [aim.value for aim in Objective]) from None


def _known(said: Mapping[object, T], kind: str, names: list[str]) -> dict[str, T]:
    for name in said:
        if name not in names:
            raise UnknownName(kind, str(name), names)
    return cast(dict[str, T], dict(said))


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else int(gigabytes * GiB)
