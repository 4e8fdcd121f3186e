"""What the user wishes for a job besides its code, and how wishes from two places are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from pydantic import ValidationError

from crucible.client.payload.base import Payload
from crucible.core.errors import BadInput
from crucible.core.resources import Resources
from crucible.core.spec import DataInput, JobSpec, Kind, Retries
from crucible.core.tiers import get_tier


@dataclass(frozen=True)
class Wishes:
    """None, 0 and empty mean: not said."""

    name: str | None = None
    kind: Kind | None = None
    backend: str | None = None
    tier: str | None = None
    resources: Mapping[str, float | int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataInput, ...] = ()
    retries: Mapping[str, int] = field(default_factory=dict)
    grace_seconds: float | None = None
    tags: tuple[str, ...] = ()

    def over(self, base: Wishes) -> Wishes:
        """These on top of others: what is said here wins; tables are joined, lists are added up."""
        said = {item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name)}
        joined = {
            "resources": {**base.resources, **self.resources},
            "env": {**base.env, **self.env},
            "retries": {**base.retries, **self.retries},
            "tags": (*base.tags, *(tag for tag in self.tags if tag not in base.tags)),
            "data": (*(item for item in base.data if item.name not in _names(self.data)), *self.data),
        }
        if self.grace_seconds is not None:
            said["grace_seconds"] = self.grace_seconds
        return replace(base, **{**said, **joined})


def _names(data: tuple[DataInput, ...]) -> frozenset[str]:
    return frozenset(item.name for item in data)


def make_spec(payload: Payload, wishes: Wishes, *, bundle: str | None) -> JobSpec:
    """The job as it is submitted. Raises BadInput naming the option that is out of bounds."""
    tier = get_tier(wishes.tier).id if wishes.tier else None
    said: dict[str, object] = {
        "name": wishes.name,
        "command": payload.command,
        "bundle": bundle,
        "in_place": payload.in_place,
        "environment": payload.environment,
        "env": dict(wishes.env),
        "data": wishes.data,
        "backend": wishes.backend,
        "tier": tier,
        "tags": wishes.tags,
        "source": payload.source,
    }
    try:
        said["resources"] = Resources.model_validate(dict(wishes.resources))
        said["retries"] = Retries.model_validate(dict(wishes.retries))
        if wishes.kind is not None:
            said["kind"] = wishes.kind
        if wishes.grace_seconds is not None:
            said["grace_seconds"] = wishes.grace_seconds
        return JobSpec.model_validate(said)
    except ValidationError as error:
        raise out_of_bounds(error) from error


_OPTIONS = {
    "memory_bytes": "memory",
    "gpu_memory_bytes": "gpu-memory",
    "seconds": "time",
    "grace_seconds": "grace",
    "user": "retries",
    "tags": "tag",
}


def out_of_bounds(error: ValidationError) -> BadInput:
    """The first thing that a check of ours found, in words."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = [str(part) for part in first["loc"]]
    name = next((part for part in reversed(path) if not part.isdigit()), "")
    message = first["msg"].removeprefix("Value error, ")
    said = f" It is {first['input']!r}." if isinstance(first["input"], str | int | float) else ""
    option = _OPTIONS.get(name, name.replace("_", "-"))
    what = f"--{option}: {message}." if option else f"{message[0].upper()}{message[1:]}."
    return BadInput(
        what, why=said.strip(), fix="`crucible run --help` explains the options.", field=".".join(path)
    )
