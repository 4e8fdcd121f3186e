"""Requirements and preferences of a job, for the Python client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from crucible.client.request.checks import check_names, check_number, check_text, invalid_value
from crucible.client.request.job_request import ArgumentReader, FieldMapping, ParseContext, PartialSpec
from crucible.client.request.pythons import SubmitHost
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput, UnknownName
from crucible.core.routing.plan_request import MAX_HOURS, Goal, Objective

T = TypeVar("T")

FREQUENCY = "CHECKPOINT_FREQUENCY_MINUTES"
"""Environment variable that tells the program how often to save."""
HELP = "docs/sdk.md explains the arguments."


def parse_number(value: Any, context: ParseContext) -> object:
    check_number(context.label, value)
    return value


def parse_whole_number(value: Any, context: ParseContext) -> object:
    check_number(context.label, value, whole=True)
    return value


def _parse_gigabytes(value: Any, context: ParseContext) -> object:
    check_number(context.label, value)
    return int(value * GiB)


def _parse_hours(value: Any, context: ParseContext) -> object:
    check_number(context.label, value)
    return value * 3600


def parse_flag(value: Any, context: ParseContext) -> object:
    if not isinstance(value, bool):
        raise invalid_value(context.label, value, "must be True or False")
    return value


def _parse_frequency(value: Any, context: ParseContext) -> object:
    check_number(context.label, value, 0, MAX_HOURS * 60, above=True)
    return {FREQUENCY: f"{value:g}"}


REQUIREMENTS: Mapping[str, FieldMapping] = {
    "gpu_memory_gb": FieldMapping("resources.gpu_memory_bytes", _parse_gigabytes),
    "duration_hours_estimated": FieldMapping("hours", parse_number),
    "checkpoint_frequency_minutes": FieldMapping("env", _parse_frequency),
    "interruptible": FieldMapping("interruptible", parse_flag),
    "max_cost_usd": FieldMapping("max_cost_usd", parse_number),
    "gpus": FieldMapping("resources.gpus", parse_whole_number),
    "cpus": FieldMapping("resources.cpus", parse_number),
    "memory_gb": FieldMapping("resources.memory_bytes", _parse_gigabytes),
    "time_limit_hours": FieldMapping("resources.seconds", _parse_hours),
    "tier": FieldMapping("tier", lambda value, context: check_text(context.label, value)),
}
"""The fields of a job and of its goal that requirements fill."""
PREFERENCES: Mapping[str, FieldMapping] = {
    "optimize_for": FieldMapping("optimize"),
    "deadline_hours": FieldMapping("deadline_hours", parse_number),
}
"""The fields of a goal that preferences fill."""


@dataclass(frozen=True)
class Requirements:
    """What a job needs; None requires nothing. Raises BadInput for impossible requirements.

    `gpu_memory_gb` asks for a GPU with that much memory (`gpus` of them; default: 1), `memory_gb` for main memory.
    `interruptible` asks for machines that the provider may take back (spot), and for one on demand where no spot
    machine is available. If a machine is taken back, the job continues elsewhere from its newest checkpoint. Costs are
    estimated for `duration_hours_estimated`; an attempt that runs longer than `time_limit_hours` is ended.
    `max_cost_usd` excludes offers where that duration would cost more; where machines bill, an attempt is ended when
    the amount is spent.
    The program finds `checkpoint_frequency_minutes` in $CHECKPOINT_FREQUENCY_MINUTES; saving is up to the program.
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
        self.read()
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
    def from_value(cls, requirements: object) -> Requirements:
        """Return the requirements, also from a mapping. Raises BadInput, and UnknownName for an unknown key."""
        if requirements is None:
            return cls()
        if isinstance(requirements, cls):
            return requirements
        if not isinstance(requirements, Mapping):
            raise invalid_value("requirements", requirements, "must be a Requirements(...)")
        return cls(**_check_keys(requirements, "requirement", [field.name for field in fields(cls)]))

    def arguments(self) -> dict[str, object]:
        """Return the requirements as arguments for `REQUIREMENTS`, with the arguments that follow from them."""
        arguments = dict(vars(self))
        if self.interruptible:
            arguments |= {"market": Market.SPOT, "spot_fallback": True}
        if self.gpus is None and self.gpu_memory_gb:
            arguments["gpus"] = 1
        return arguments

    def read(self) -> tuple[PartialSpec, Goal]:
        """Return the requirements as the fields of a job and a goal."""
        return ArgumentReader(REQUIREMENTS, str, SubmitHost({}, Path()), HELP).read(self.arguments())


@dataclass(frozen=True)
class Preferences:
    """How backends are ranked. `allowed_backends` None: all that the server is connected to.

    `deadline_hours`: offers where the job would take longer than this are left out of recommendations.
    """

    optimize_for: Objective = Objective.COST
    allowed_backends: tuple[str, ...] | None = None
    deadline_hours: float | None = None

    @classmethod
    def from_value(cls, preferences: object) -> Preferences:
        """Return the preferences, also from a mapping. Raises BadInput, and UnknownName for an unknown key."""
        if preferences is None:
            return cls()
        if isinstance(preferences, cls):
            return preferences
        if not isinstance(preferences, Mapping):
            raise invalid_value("preferences", preferences, "must be a table such as {'optimize_for': 'cost'}")
        values = _check_keys(preferences, "preference", [field.name for field in fields(cls)])
        objective = values.get("optimize_for")
        return cls(
            optimize_for=Objective.COST if objective is None else _objective(objective),
            allowed_backends=check_names("allowed_backends", values.get("allowed_backends")),
            deadline_hours=values.get("deadline_hours"),
        )

    def arguments(self) -> dict[str, object]:
        """Return the preferences as arguments for `PREFERENCES`."""
        return dict(vars(self))


def _objective(value: object) -> Objective:
    try:
        return Objective(check_text("optimize_for", getattr(value, "value", value)).lower())
    except ValueError:
        raise UnknownName("objective of optimize_for", str(value), list(Objective)) from None


def _check_keys(mapping: Mapping[object, T], kind: str, names: list[str]) -> dict[str, T]:
    for name in mapping:
        if name not in names:
            raise UnknownName(kind, str(name), names)
    return cast(dict[str, T], dict(mapping))
