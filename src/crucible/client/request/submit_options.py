"""Reads the keywords of `submit` and `recommend`, and checks what can be checked without a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from crucible.client.payload import JOB_FILES, CodeSource, ModelOptions
from crucible.client.payload.git import looks_like_git
from crucible.client.request.checks import check_names, check_text, invalid_value
from crucible.client.request.job_request import (
    KIND,
    MARKET,
    ArgumentReader,
    FieldMapping,
    ParseContext,
    PartialSpec,
    parse_data,
    parse_no_outputs,
    parse_secrets,
    parse_variables,
)
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.requirements import (
    HELP,
    PREFERENCES,
    REQUIREMENTS,
    Preferences,
    Requirements,
    parse_flag,
    parse_number,
    parse_whole_number,
)
from crucible.core.errors import BadInput, UnknownName
from crucible.core.routing.plan_request import Goal

_FILE = re.compile(r"[^\s()=]+\.(py|ipynb|ya?ml|toml|json)")
_TARGETS = ("code", "path", "git", "function", "shell", "model")
_MODEL_OPTIONS = ("config", "plugin", "inputs", "callbacks")


class SubmitOptions(TypedDict, total=False):
    """What to run: one of `code`, `path`, `git`, `function`, `shell` and `model`. The rest as in `crucible run`.

    `code` may also be a Path (the same as `path`) or a function (the same as `function`). `args` are appended to the
    command line; to a function they are passed as arguments, as are `kwargs`. A model has a `config`, a `plugin` to
    install it from (default: it is installed here), `inputs` to predict from, and `callbacks` for training.

    `places` names backends in the order to use them (default: ranked by `preferences`). `env` holds variables of the
    job; None takes the value of this process. `secrets` are names of the project's secrets, or a mapping of variables
    to such names. `data` are paths or URLs, or a mapping of names to them.

    `market="spot"` waits for a spot machine where machines bill; with `spot_fallback=True` the job runs on demand if
    none is available. `Requirements(interruptible=True)` asks for spot with that fallback.
    """

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
    market: str
    spot_fallback: bool
    regions: Sequence[str]
    priority: int
    retries: int
    retry_wait_seconds: float
    max_wait_seconds: float
    keep_checkpoints: int
    outputs: Sequence[str]
    no_outputs: bool
    seed: int
    resume_from: str
    grace_seconds: float


def read_keywords(host: SubmitHost, **keywords: object) -> tuple[CodeSource, PartialSpec, Goal]:
    """Return what to run, the fields of the job, and the goal that the keywords of `submit` and `recommend` give.

    Raises BadInput, and UnknownName for a keyword that does not exist. The code itself is not read yet.
    """
    known = ["code", "requirements", "preferences", *SubmitOptions.__annotations__]
    for name in keywords:
        if name not in known:
            raise UnknownName("argument of submit", name, known)
    values = {name: value for name, value in keywords.items() if value is not None}
    requirements = Requirements.from_value(values.get("requirements"))
    preferences = Preferences.from_value(values.get("preferences"))
    places = check_names("places", values.get("places"))
    if places is not None and preferences.allowed_backends is not None:
        raise BadInput(
            "places and allowed_backends contradict each other.",
            why="places lists backends in order, allowed_backends a set to rank.",
            fix="Give one of them.",
            field="places",
        )
    source = _code_source(values, host)
    reader = ArgumentReader(KEYWORDS, str, host, HELP)
    required = requirements.arguments()
    if "market" in values:
        required.pop("spot_fallback", None)
    # Last come the keywords themselves, so that `env` wins over a variable that a requirement sets.
    arguments = {**required, **preferences.arguments(), **values, "places": places}
    return source, *reader.read(arguments)


def _texts(value: Any, context: ParseContext) -> tuple[str, ...]:
    items = [value] if isinstance(value, str | Path) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str | Path) for item in items):
        raise invalid_value(context.label, value, "must be a list of strings")
    return tuple(check_text(context.label, str(item)) for item in items)


def _table_or_texts(value: Any, context: ParseContext) -> Mapping[str, str] | tuple[str, ...]:
    if not isinstance(value, Mapping):
        return _texts(value, context)
    return {check_text(context.label, name): check_text(context.label, str(item)) for name, item in value.items()}


def _env(value: Any, context: ParseContext) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise invalid_value("env", value, "must be a mapping of names to values")
    for name, item in value.items():
        if not isinstance(name, str) or isinstance(item, bool) or not isinstance(item, str | int | float | None):
            raise invalid_value(f"env[{name!r}]", item, "must be text, a number, or None for the value of this process")
        if "=" in name:
            raise invalid_value("env", name, "must have names without =")
    return parse_variables(value, context)


def _no_outputs(value: Any, context: ParseContext) -> tuple[str, ...]:
    parse_flag(value, context)
    return parse_no_outputs(value, context)


KEYWORDS: Mapping[str, FieldMapping] = {
    **REQUIREMENTS,
    **PREFERENCES,
    "places": FieldMapping("backend"),
    "kind": FieldMapping("kind", KIND),
    "market": FieldMapping("market", MARKET),
    "spot_fallback": FieldMapping("spot_fallback", parse_flag),
    "env": FieldMapping("env", _env),
    "secrets": FieldMapping("secrets", lambda value, context: parse_secrets(_table_or_texts(value, context), context)),
    "data": FieldMapping("data", lambda value, context: parse_data(_table_or_texts(value, context), context)),
    "tags": FieldMapping("tags", _texts),
    "regions": FieldMapping("regions", _texts),
    "retries": FieldMapping("retries.user", parse_whole_number),
    "retry_wait_seconds": FieldMapping("retries.wait_seconds", parse_number),
    "keep_checkpoints": FieldMapping("keep.latest", parse_whole_number),
    "outputs": FieldMapping("outputs", _texts),
    "no_outputs": FieldMapping("outputs", _no_outputs),
    "seed": FieldMapping("seed", parse_whole_number),
    "max_wait_seconds": FieldMapping("max_wait_seconds", parse_number),
    "grace_seconds": FieldMapping("grace_seconds", parse_number),
}
"""Fields of the keywords whose name or type differs from the field's."""


def _code_source(values: Mapping[str, Any], host: SubmitHost) -> CodeSource:
    """Return what to run. Raises BadInput for contradicting keywords; no file is read yet."""
    kinds = [name for name in _TARGETS if name in values]
    if len(kinds) != 1:
        raise BadInput(
            "There is more than one thing to run." if kinds else "There is nothing to run.",
            why=f"{', '.join(_TARGETS[:-1])} and {_TARGETS[-1]} exclude each other." if kinds else "",
            fix="For example: submit(code='print(1)') or submit(path='train.py').",
        )
    _check_arguments(values)
    if not isinstance(values.get("in_place", False), bool):
        raise invalid_value("in_place", values["in_place"], "must be True or False")
    kind, target = _target(kinds[0], values[kinds[0]], host)
    if kind != "function" and values.get("kwargs"):
        raise BadInput("kwargs are for functions.", fix="Pass args, as on the command line.", field="kwargs")
    return CodeSource(
        host,
        kind,
        target,
        arguments=tuple(values.get("args", ())),
        kwargs=values.get("kwargs", {}),
        model=_model(values, host.folder),
        include=_texts(values.get("include", ()), ParseContext("include", host)),
        in_place=values.get("in_place", False),
        python=_text(values, "python"),
        entry=_text(values, "entry"),
        ref=_text(values, "ref"),
    )


def _text(values: Mapping[str, object], name: str) -> str | None:
    return check_text(name, values[name]) if name in values else None


def _target(kind: str, target: object, host: SubmitHost) -> tuple[str, object]:
    """Return the target and its kind, which for `code` depends on the target's type."""
    if kind == "function" or (kind == "code" and callable(target)):
        if not callable(target):
            raise BadInput("function must be a function.", fix="Pass the function itself, without calling it.")
        return "function", target
    if kind == "path" or isinstance(target, Path):
        return "path", _path(target)
    text = check_text(kind, target)
    if kind == "code" and _FILE.fullmatch(text.strip()):
        raise BadInput(
            f"{text.strip()!r} is the name of a file, not code.",
            fix=f"Pass path={text.strip()!r}, or code=open({text.strip()!r}).read().",
            field="code",
        )
    return kind, repository(text, host.folder) if kind == "git" else text


def repository(named: str, folder: Path) -> str:
    """Return the address of a repository; a local path, `PATH` or `PATH@REVISION`, becomes a file:// address."""
    if not named.strip():
        raise BadInput("git names no repository.", fix="Name a folder or a URL; `.` is this folder.", field="git")
    if looks_like_git(named):
        return named
    name, at, revision = named.rpartition("@")
    path = (folder / Path(named).expanduser()).resolve()
    if at and not path.exists():
        path = (folder / Path(name).expanduser()).resolve()
    else:
        revision = ""
    if not path.is_dir():
        raise BadInput(
            f"{named} is not a repository.",
            why=f"There is no folder {path}.",
            fix="Name a folder with a git repository, or an address such as https://example.org/team/project.git@main.",
        )
    address = f"file://{quote(str(path))}".replace("@", "%40")
    return f"{address}@{revision}" if revision else address


def _check_arguments(values: Mapping[str, Any]) -> None:
    args = values.get("args", ())
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise BadInput("args must be a list.", fix="Write args=['--epochs', 3].", field="args")
    if not isinstance(values.get("kwargs", {}), Mapping):
        raise BadInput("kwargs must be a table.", fix="Write kwargs={'epochs': 3}.", field="kwargs")


def _model(values: Mapping[str, Any], folder: Path) -> ModelOptions | None:
    if "model" not in values:
        for name in _MODEL_OPTIONS:
            if values.get(name):
                raise BadInput(f"{name} belongs to a model.", fix="Name it: submit(model='...').", field=name)
        return None
    if values.get("args"):
        raise BadInput("A model takes no args.", fix="Pass its options as config.", field="args")
    config, callbacks = values.get("config", {}), values.get("callbacks", ())
    if not isinstance(config, Mapping):
        raise BadInput("config must be a table.", fix="Write config={'epochs': 3}.", field="config")
    if isinstance(callbacks, str) or not all(isinstance(item, str) for item in callbacks):
        raise BadInput(
            "callbacks must be a list.", fix="Write callbacks=['my_package.watch:Printer'].", field="callbacks"
        )
    return ModelOptions(folder, config, (), _text(values, "plugin"), values.get("inputs"), tuple(callbacks))


def _path(named: object) -> str:
    path = check_text("path", str(named) if isinstance(named, Path) else named)
    if Path(path).suffix in JOB_FILES:
        raise BadInput(
            f"{path} is a job file.",
            why="The Python client takes its fields as keywords.",
            fix=f"Run it with `crucible run {path}`, or name the script in it.",
        )
    return path
