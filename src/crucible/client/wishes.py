"""What the user wishes for a job besides its code, and how wishes from two places are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from pydantic import ValidationError

from crucible.client.payload.base import Payload
from crucible.core.errors import BadInput
from crucible.core.offers import Market
from crucible.core.resources import Resources, format_duration, format_memory
from crucible.core.spec import DataInput, JobSpec, Keeping, Kind, Retries
from crucible.core.tags import parse_tags
from crucible.core.tiers import get_tier


@dataclass(frozen=True)
class Wishes:
    """None and empty mean: not said."""

    name: str | None = None
    project: str | None = None
    kind: Kind | None = None
    backend: str | None = None
    fallback: tuple[str, ...] = ()
    market: Market | None = None
    regions: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    tier: str | None = None
    resources: Mapping[str, float | int] = field(default_factory=dict)
    max_cost_usd: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataInput, ...] = ()
    retries: Mapping[str, float | int] = field(default_factory=dict)
    keep: Mapping[str, int | bool] = field(default_factory=dict)
    seed: int | None = None
    resume_from: str | None = None
    plan: str | None = None
    grace_seconds: float | None = None
    tags: tuple[str, ...] = ()

    def over(self, base: Wishes) -> Wishes:
        """These on top of others: what is said here wins; tables are joined, lists are added up.

        Places and regions are lists that replace others; a backend also replaces the fallback of the other.
        """
        said = {item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name)}
        joined: dict[str, object] = {
            "resources": {**base.resources, **self.resources},
            "env": {**base.env, **self.env},
            "secrets": {**base.secrets, **self.secrets},
            "retries": {**base.retries, **self.retries},
            "keep": {**base.keep, **self.keep},
            "tags": (*base.tags, *(tag for tag in self.tags if tag not in base.tags)),
            "data": (*(item for item in base.data if item.name not in _names(self.data)), *self.data),
        }
        if self.backend:
            joined["fallback"] = self.fallback
        for name in ("grace_seconds", "seed", "resume_from", "max_cost_usd"):
            if getattr(self, name) is not None:
                said[name] = getattr(self, name)
        return replace(base, **{**said, **joined})


def _names(data: tuple[DataInput, ...]) -> frozenset[str]:
    return frozenset(item.name for item in data)


def make_spec(payload: Payload, wishes: Wishes, *, bundle: str | None) -> JobSpec:
    """The job as it is submitted. Raises BadInput naming the option that is out of bounds."""
    tier = get_tier(wishes.tier).id if wishes.tier else None
    parse_tags(wishes.tags)
    said: dict[str, object] = {
        "command": payload.command,
        "bundle": bundle,
        "in_place": payload.in_place,
        "environment": payload.environment,
        "source": payload.source,
    }
    try:
        return _spec({**said, "tier": tier}, wishes)
    except ValidationError as error:
        raise out_of_bounds(error) from error


def _spec(said: Mapping[str, object], wishes: Wishes) -> JobSpec:
    known = {
        "name": wishes.name,
        "project": wishes.project,
        "env": dict(wishes.env),
        "secrets": dict(wishes.secrets),
        "data": wishes.data,
        "backend": wishes.backend,
        "fallback": wishes.fallback,
        "market": wishes.market,
        "regions": wishes.regions,
        "gpu_types": wishes.gpu_types,
        "tags": wishes.tags,
        "kind": wishes.kind,
        "grace_seconds": wishes.grace_seconds,
        "resources": Resources.model_validate(dict(wishes.resources)),
        "max_cost_usd": wishes.max_cost_usd,
        "retries": Retries.model_validate(dict(wishes.retries)),
        "keep": Keeping.model_validate(dict(wishes.keep)),
        "seed": wishes.seed,
        "resume_from": wishes.resume_from,
        "plan": wishes.plan,
    }
    return JobSpec.model_validate({**said, **{key: value for key, value in known.items() if value is not None}})


def check_bounds(wishes: Wishes, called: Callable[[str], str]) -> None:
    """Raise BadInput for what is out of bounds whatever the code is; `called` gives a field's name."""
    bare = replace(wishes, tier=None)
    try:
        _spec({"command": ("true",)}, bare)
    except ValidationError as error:
        raise out_of_bounds(error, called) from error


def flag(field: str) -> str:
    """What a field of a job file is called on the command line."""
    return f"--{_FLAGS.get(field, field.replace('_', '-'))}"


_FLAGS = {
    "tags": "tag",
    "secrets": "secret",
    "regions": "region",
    "gpu_types": "gpu",
    "keep": "keep-checkpoints",
    "max_cost_usd": "max-cost",
    "deadline_hours": "deadline",
    "allowed_backends": "allow",
}
_FIELDS = {
    "memory_bytes": "memory",
    "gpu_memory_bytes": "gpu_memory",
    "seconds": "time",
    "grace_seconds": "grace",
    "user": "retries",
    "interruption": "retries",
    "infrastructure": "retries",
    "wait_seconds": "retry_wait",
    "latest": "keep",
    "best": "keep",
    "every": "keep",
    "higher_is_better": "keep",
}


def out_of_bounds(error: ValidationError, called: Callable[[str], str] = flag) -> BadInput:
    """The first thing that a check of ours found, in words and with units."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    name = next((part for part in reversed(path) if not part.isdigit()), "")
    message = _bound(name, first["type"], first.get("ctx", {}))
    said = first["msg"].removeprefix("Value error, ")
    if not name:
        what = f"{said[0].upper()}{said[1:]}."
    else:
        what = f"{called(_FIELDS.get(name, name))} {message}." if message else f"{called(name)}: {said}."
    fix = _fix(name, first["input"]) or "`crucible run --help` explains the options."
    return BadInput(what, why=_value(name, first["input"]), fix=fix, field=".".join(path))


def _bound(name: str, kind: str, limits: Mapping[str, object]) -> str:
    """`must be at least 16 MiB`; empty for a check that has words of its own."""
    if kind == "greater_than_equal":
        return f"must be at least {_amount(name, limits['ge'])}"
    if kind == "less_than":
        return f"must be less than {_amount(name, limits['lt'])}"
    if kind == "less_than_equal":
        return f"must be at most {_amount(name, limits['le'])}"
    return {
        "finite_number": "must be a number",
        "float_parsing": "must be a number",
        "int_parsing": "must be a whole number",
        "int_from_float": "must be a whole number",
        "string_too_short": "must not be empty",
        "string_too_long": f"must not be longer than {limits.get('max_length')} characters",
        "too_long": f"may be given {limits.get('max_length')} times at most",
        "string_pattern_mismatch": _PATTERNS.get(name, "must not hold slashes, backslashes or control characters"),
    }.get(kind, "")


_PATTERNS = {"project": "has 1 to 63 of a-z, 0-9, - and _, and begins with a letter or a digit"}


def _amount(name: str, value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("_bytes"):
        return format_memory(value)
    if name.endswith("seconds"):
        return format_duration(value)
    return str(value) if isinstance(value, int) else f"{value:g}"


def _value(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, str):
        return f"It is {value!r}." if len(value) <= 200 else ""
    return f"It is {_amount(name, value)}."


def _fix(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int) and value < 1024:
        return f"A number without a unit is bytes; write {value}G for {value} GiB."
    return ""
