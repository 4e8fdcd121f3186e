"""A submission as it was asked for: checked as far as that goes without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypedDict

from crucible.client.candidates import Line
from crucible.client.checks import check_number, check_text, read_names, wrong
from crucible.client.inputs import read_data, read_secrets
from crucible.client.planning import Aims
from crucible.client.requirements import Preferences, Requirements
from crucible.client.taking import Taken
from crucible.client.wishes import Wishes, check_bounds
from crucible.core.errors import BadInput, UnknownName
from crucible.core.resources import GiB
from crucible.core.spec import Kind

_TAKEN = tuple(item.name for item in fields(Taken))
_TEXTS = ("name", "project", "python", "entry", "ref", "resume_from", "plan")
_WHOLE = ("retries", "keep_checkpoints", "seed")
_SECONDS = ("grace_seconds", "retry_wait_seconds")
MOST = 2**63
"""The numbers have bounds of their own, which are checked with those of the command line."""
_LISTS = ("tags", "include", "data", "regions")


class Options(TypedDict, total=False):
    """The further arguments of `submit`, by name; what they mean is told by `Taken` and `Ask`."""

    path: str | Path
    git: str
    function: Callable[..., object]
    shell: str
    args: Sequence[object]
    kwargs: Mapping[str, object]
    model: str
    config: Mapping[str, object]
    plugin: str
    inputs: object
    callbacks: Sequence[str]
    places: Sequence[str]
    name: str
    project: str
    kind: str
    env: Mapping[str, str | int | float | None]
    secrets: Sequence[str] | Mapping[str, str]
    data: Sequence[str | Path] | Mapping[str, str | Path]
    include: Sequence[str]
    entry: str
    ref: str
    python: str
    in_place: bool
    tags: Sequence[str]
    regions: Sequence[str]
    retries: int
    retry_wait_seconds: float
    keep_checkpoints: int
    seed: int
    resume_from: str
    plan: str
    grace_seconds: float


@dataclass(frozen=True)
class Ask:
    """What is to run, what it needs, and where; the other fields are the options of `crucible run`.

    `places` names backends in the order to try them; without it, `preferences` decide. `env` holds the variables
    of the job, with None for this process's own value. `secrets` are names of secrets of the project, or a table of
    variables and such names. `data` are paths or URLs, or a table of them by name.
    """

    taken: Taken
    requirements: Requirements = Requirements()
    preferences: Preferences = Preferences()
    places: tuple[str, ...] | None = None
    name: str | None = None
    project: str | None = None
    kind: Kind | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    entry: str | None = None
    ref: str | None = None
    python: str | None = None
    in_place: bool = False
    tags: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    retries: int | None = None
    retry_wait_seconds: float | None = None
    keep_checkpoints: int | None = None
    seed: int | None = None
    resume_from: str | None = None
    plan: str | None = None
    grace_seconds: float | None = None

    @classmethod
    def of(cls, **said: object) -> Ask:
        """Read the arguments of `submit`; raises BadInput, or UnknownName for one that there is not."""
        names = [item.name for item in fields(cls) if item.name != "taken"]
        for name in said:
            if name not in names and name not in _TAKEN:
                raise UnknownName("argument of submit", name, [*names, *_TAKEN])
        given = {name: value for name, value in said.items() if value is not None}
        taken = Taken(**{name: value for name, value in given.items() if name in _TAKEN})  # type: ignore[arg-type]
        rest = {name: value for name, value in given.items() if name not in _TAKEN}
        ask = cls(taken=taken.checked(), **{**rest, **_read(rest)})  # type: ignore[arg-type]
        if ask.places is not None and ask.preferences.allowed_backends is not None:
            raise BadInput(
                "places and allowed_backends contradict each other.",
                why="The first is an order, the second a choice that is put in order for you.",
                fix="Give one of them.",
                field="places",
            )
        check_bounds(ask.bare(), str)
        return ask

    def with_model(self, wishes: Wishes) -> Ask:
        """The same, with the name, the kind and the GPU that a model asked for in these wishes."""
        needs, size = self.requirements, wishes.resources
        if "gpu_memory_bytes" in size:
            needs = replace(needs, gpus=int(size["gpus"]), gpu_memory_gb=size["gpu_memory_bytes"] / GiB)
        return replace(self, name=wishes.name, kind=wishes.kind, requirements=needs)

    def bare(self) -> Wishes:
        """What can be said of the job before it has a place and its inputs are read."""
        needs, retries = self.requirements, {"user": self.retries, "wait_seconds": self.retry_wait_seconds}
        return Wishes(
            name=self.name,
            project=self.project,
            kind=self.kind,
            market=needs.market,
            regions=self.regions,
            tier=needs.tier,
            resources=needs.resources(),
            max_cost_usd=needs.max_cost_usd,
            env={**needs.env(), **{name: value for name, value in self.env.items() if value is not None}},
            secrets=self.secrets,
            retries={name: value for name, value in retries.items() if value is not None},
            keep={} if self.keep_checkpoints is None else {"latest": self.keep_checkpoints},
            seed=self.seed,
            resume_from=self.resume_from,
            plan=self.plan,
            grace_seconds=self.grace_seconds,
            tags=self.tags,
        )

    def bare_of_market(self) -> Wishes:
        """The same at the places that were named, for a plan: what may be interrupted may also not be."""
        first, *others = self.places or (None,)
        return replace(self.bare(), market=None, backend=first, fallback=tuple(name for name in others if name))

    def aims(self) -> Aims:
        needs, preferences = self.requirements, self.preferences
        return Aims(
            optimize=preferences.optimize_for,
            hours=needs.duration_hours_estimated,
            deadline_hours=preferences.deadline_hours,
            allowed_backends=preferences.allowed_backends or (),
            interruptible=needs.interruptible or None,
        )

    def wishes(self, line: Line, folder: Path, environ: Mapping[str, str]) -> Wishes:
        """All that is wished for, at the places of `line`."""
        bare = self.bare()
        inherited = {name: _inherited(name, environ) for name, value in self.env.items() if value is None}
        return replace(
            bare,
            backend=line.names[0],
            fallback=line.names[1:],
            env={**bare.env, **inherited},
            data=read_data(self.data, folder, "data"),
        )


def _read(rest: Mapping[str, object]) -> dict[str, object]:
    """The arguments that are more than a text or a number, as values."""
    for name in _TEXTS:
        if name in rest:
            check_text(name, rest[name])
    if not isinstance(rest.get("in_place", False), bool):
        raise wrong("in_place", rest["in_place"], "is True or False")
    for name in _WHOLE:
        check_number(name, rest.get(name), 0, MOST, whole=True)
    for name in _SECONDS:
        check_number(name, rest.get(name), 0, MOST)
    found: dict[str, object] = {
        "requirements": Requirements.of(rest.get("requirements")),
        "preferences": Preferences.of(rest.get("preferences")),
        "places": read_names("places", rest.get("places")),
        "env": _env(rest.get("env", {})),
        "secrets": _secrets(rest.get("secrets", ())),
        "kind": _kind(rest.get("kind")),
    }
    return {**found, **{name: _list(name, rest[name]) for name in _LISTS if name in rest}}


def _list(name: str, said: object) -> tuple[str, ...]:
    if name == "data" and isinstance(said, Mapping):
        return tuple(check_text(name, f"{key}={value}") for key, value in said.items())
    items = [said] if isinstance(said, str | Path) else said
    if not isinstance(items, Sequence) or not all(isinstance(item, str | Path) for item in items):
        raise wrong(name, said, "is a list of texts")
    return tuple(check_text(name, str(item)) for item in items)


def _secrets(said: object) -> dict[str, str]:
    named = [f"{key}={value}" for key, value in said.items()] if isinstance(said, Mapping) else _list("secrets", said)
    return read_secrets(named, "secrets")


def _env(said: object) -> dict[str, str | None]:
    if not isinstance(said, Mapping):
        raise wrong("env", said, "is a table of names and texts")
    for name, value in said.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise wrong(f"env[{name!r}]", value, "is a text, a number, or None for this process's own value")
    return {name: None if value is None else str(value) for name, value in said.items()}


def _inherited(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise BadInput(
            f"env: there is no variable {name} here.", fix=f"Set {name}, or give its value: env={{{name!r}: '...'}}."
        )
    return environ[name]


def _kind(said: object) -> Kind | None:
    if said is None:
        return None
    try:
        return Kind(str(getattr(said, "value", said)).lower())
    except ValueError:
        raise UnknownName("kind of job", str(said), [kind.value for kind in Kind]) from None
