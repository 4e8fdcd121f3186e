"""Job files: a run written down as YAML, TOML or JSON, read and joined with the flags."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from crucible.client.inputs import read_data, read_secrets, read_variables
from crucible.client.payload.base import Payload, Request, missing
from crucible.client.payload.near import nearest
from crucible.client.placing import read_market, read_names, read_places
from crucible.client.pythons import located
from crucible.client.wishes import Wishes, check_bounds
from crucible.core.errors import BadInput
from crucible.core.jobfile import PAYLOADS, JobFile, JobModel, as_text
from crucible.core.resources import parse_duration, parse_memory
from crucible.core.spec import Kind

if TYPE_CHECKING:
    import yaml

    from crucible.client.modeljobs import ModelAsk

T = TypeVar("T")


@dataclass(frozen=True)
class JobFileRun:
    """What a job file asks for: the kind of payload and its text, how to take it up, and the wishes.

    Of a model the text is its name, and `model` has the rest.
    """

    kind: str
    target: str
    request: Request
    wishes: Wishes
    model: ModelAsk | None = None
    where: str = ""
    """Which line of the file says what to run."""

    def taken(self, flags: ModelAsk | None, wishes: Wishes) -> tuple[Payload, Wishes]:
        """The model of the file, with what flags say over it, as a job with these wishes."""
        from crucible.client.modeljobs import take_model

        assert self.model is not None, "only of a file that names a model"
        try:
            return take_model(flags.over(self.model) if flags else self.model, self.request, wishes)
        except BadInput as error:
            raise BadInput(f"{self.where}: {error.what}", why=error.why, fix=error.fix, **error.data) from error


def read_job_file(shown: str, request: Request) -> JobFileRun:
    """The run that the file describes, its paths taken from the file's folder, flags in `request` winning."""
    path = (request.folder / Path(shown).expanduser()).resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path, shown) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{shown} cannot be read.", why=str(error), fix="Name a text file in UTF-8.") from error
    read = _parse(text, path.suffix, shown)
    file = read.file
    around = replace(request.around, folder=path.parent)
    taken = replace(
        request,
        around=around,
        arguments=(*map(as_text, file.args), *request.arguments),
        python=located(request.python, request.folder) if request.python else file.python,
        include=(*file.include, *request.include),
        entry=request.entry or file.entry,
        ref=request.ref or file.ref,
        in_place=request.in_place or file.in_place,
    )
    kind = next(name for name in PAYLOADS if getattr(file, name) is not None)
    wishes, where = _wishes(read, path.parent, around.environ), read.where(kind)
    if file.model is not None:
        return JobFileRun(kind, file.model.name, taken, wishes, _model(file.model, path.parent, where), where)
    return JobFileRun(kind, getattr(file, kind), taken, wishes, where=where)


def parse_job_file(text: str, suffix: str, shown: str) -> JobFile:
    return _parse(text, suffix, shown).file


@dataclass(frozen=True)
class _Read:
    """A file as it was read, with where its fields stand."""

    file: JobFile
    lines: Mapping[str, int]
    shown: str

    def where(self, field: str) -> str:
        """`job.yaml, line 3: memory`."""
        return f"{_where(self.shown, self.lines, field)}: {field}"

    def parsed(self, field: str, parse: Callable[[str], T]) -> T | None:
        value = getattr(self.file, field)
        try:
            return None if value is None else parse(str(value))
        except BadInput as error:
            raise BadInput(f"{self.where(field)}: {error.what}", fix=error.fix, field=field) from error


def _parse(text: str, suffix: str, shown: str) -> _Read:
    content, lines = _load(text, suffix, shown)
    if not isinstance(content, dict):
        raise BadInput(f"{shown} is no job file.", why="It holds no table of fields.", fix=_INIT)
    if "command" in content and "bundle" in content:
        raise BadInput(f"{shown} is a submitted job, not a job file.", fix=_INIT)
    try:
        return _Read(JobFile.model_validate(content), lines, shown)
    except ValidationError as error:
        raise _explain(error, lines, shown) from error


def _model(said: JobModel, folder: Path, where: str) -> ModelAsk:
    from crucible.client.modeljobs import ModelAsk
    from crucible.client.plugins.configs import FORMATS, read_table

    if isinstance(said.config, dict):
        config = said.config
    elif Path(said.config).suffix in FORMATS:
        config = read_table(said.config, folder, f"{where}: config")
    else:
        fix = f"Write {{epochs: 3}}, or name a file that ends in {', '.join(FORMATS)}."
        raise BadInput(f"{where}: config is a table, or the path of a file with one.", fix=fix, field="model")
    return ModelAsk(said.name, folder, config, (), said.plugin, said.input, said.callbacks)


_INIT = "`crucible init` writes an example; docs/job-file.md explains the fields."


def _load(text: str, suffix: str, shown: str) -> tuple[object, Mapping[str, int]]:
    """The content, and the line of each field where the format tells."""
    import yaml

    try:
        # A number stays the text it was: 3.10 is not 3.1 to a program that gets it as an argument.
        if suffix == ".toml":
            return _with_numbers(tomllib.loads(text, parse_float=str), tomllib.loads(text)), {}
        if suffix == ".json":
            return _with_numbers(json.loads(text, parse_float=str), json.loads(text)), {}
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        fields = node.value if isinstance(node, yaml.MappingNode) else []
        lines = {str(key.value): key.start_mark.line + 1 for key, _ in fields}
        return _as_written(yaml.safe_load(text), {key.value: value for key, value in fields}), lines
    except (ValueError, RecursionError) as error:
        why = "It is nested too deeply." if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"{shown} is not valid {suffix[1:].upper()}.", why=why, fix=_INIT) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"{shown} is not valid YAML{where}.", why=f"{problem}.", fix=_INIT) from error


def _with_numbers(content: object, read: object) -> object:
    """A model's options are values and no words of a command: there a number is one."""
    if isinstance(content, dict) and isinstance(read, dict) and "model" in content:
        return {**content, "model": read["model"]}
    return content


_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))


def _as_written(content: object, nodes: Mapping[str, yaml.Node]) -> object:
    """Arguments and variables as the texts that stand in the file: `True`, `yes`, `007` and `1e3` stay so."""
    if not isinstance(content, dict):
        return content
    args, env = nodes.get("args"), nodes.get("env")
    if isinstance(content.get("args"), list) and args is not None:
        pairs = zip(content["args"], args.value, strict=True)
        content["args"] = [_written(value, node) for value, node in pairs]
    if isinstance(content.get("env"), dict) and env is not None:
        written = {key.value: node.value for key, node in env.value if node.tag in _PLAIN}
        content["env"] = {name: written.get(str(name), value) for name, value in content["env"].items()}
    return content


def _written(value: object, node: yaml.Node) -> object:
    return node.value if node.tag in _PLAIN else value


def _where(shown: str, lines: Mapping[str, int], field: str) -> str:
    return f"{shown}, line {lines[field]}" if field in lines else shown


def _explain(error: ValidationError, lines: Mapping[str, int], shown: str) -> BadInput:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    where = _where(shown, lines, field)
    if first["type"] == "extra_forbidden":
        *above, name = map(str, first["loc"])
        near = nearest(name, JobModel.model_fields if above else JobFile.model_fields)
        fix = f"Did you mean {near!r}?" if near else _INIT
        within = f" in {field!r}" if above else ""
        return BadInput(f"{where}: there is no field {name!r}{within}.", fix=fix, field=field, meant=near)
    if first["type"] == "enum":
        known = [kind.value for kind in Kind]
        near = nearest(str(first["input"]).lower(), known)
        fix = f"Did you mean {near!r}?" if near else f"Known: {', '.join(known)}."
        return BadInput(f"{where}: there is no {field} {first['input']!r}."[:200], fix=fix, field=field, meant=near)
    message = _message(first["type"], first["msg"])
    named = ".".join(map(str, first["loc"])) if field == "model" else field
    what = f"{where}: {named}: {message}." if field else f"{where}: {message}."
    return BadInput(what, fix=_INIT, field=field, line=lines.get(field))


_KINDS = {
    "missing": "this is needed",
    "model_type": "this has to be a name or a table",
    "string_too_short": "this must not be empty",
    "string_type": "this has to be a text",
    "int_type": "this has to be a whole number",
    "int_parsing": "this has to be a whole number",
    "int_from_float": "this has to be a whole number",
    "float_type": "this has to be a number",
    "float_parsing": "this has to be a number",
    "bool_type": "this has to be true or false",
    "bool_parsing": "this has to be true or false",
    "tuple_type": "this has to be a list",
    "dict_type": "this has to be a table",
    "greater_than_equal": "this is too small",
}


def _message(kind: str, message: str) -> str:
    return _KINDS.get(kind) or message.removeprefix("Value error, ")


def _wishes(read: _Read, folder: Path, environ: Mapping[str, str]) -> Wishes:
    file = read.file
    named = [name if value is None else f"{name}={as_text(value)}" for name, value in file.env.items()]
    secrets = [f"{k}={v}" for k, v in file.secrets.items()] if isinstance(file.secrets, dict) else file.secrets
    data = [f"{k}={v}" for k, v in file.data.items()] if isinstance(file.data, dict) else list(file.data)
    backend, fallback = read_places(file.backend, _texts(file.fallback), read.where("backend"))
    wishes = Wishes(
        name=file.name,
        project=file.project,
        kind=file.kind,
        backend=backend,
        fallback=fallback,
        market=read.parsed("market", read_market),
        regions=read_names(_texts(file.regions)),
        gpu_types=read_names(_texts(file.gpu)),
        tier=file.tier,
        resources=_resources(read),
        max_cost_usd=file.max_cost_usd,
        env=read_variables(named, [folder / name for name in file.env_files], environ, f"{read.shown}: env"),
        secrets=read_secrets(secrets, f"{read.shown}: secrets"),
        data=read_data(data, folder, f"{read.shown}: data"),
        retries=_retries(read),
        keep=_keep(read.file.keep),
        seed=file.seed,
        resume_from=file.resume_from,
        grace_seconds=read.parsed("grace", parse_duration),
        tags=file.tags,
    )
    check_bounds(wishes, read.where)
    return wishes


def _retries(read: _Read) -> dict[str, float | int]:
    said = read.file.retries
    found: dict[str, float | int] = {"user": said} if isinstance(said, int) else dict(said or {})
    wait = read.parsed("retry_wait", parse_duration)
    return found if wait is None else {**found, "wait_seconds": wait}


def _keep(said: int | Mapping[str, int | bool] | None) -> dict[str, int | bool]:
    return {"latest": said} if isinstance(said, int) else dict(said or {})


def _texts(said: str | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else said


def _resources(read: _Read) -> dict[str, float | int]:
    said: dict[str, float | int | None] = {
        "cpus": read.file.cpus,
        "memory_bytes": read.parsed("memory", parse_memory),
        "gpus": read.file.gpus,
        "gpu_memory_bytes": read.parsed("gpu_memory", parse_memory),
        "seconds": read.parsed("time", parse_duration),
    }
    return {name: value for name, value in said.items() if value is not None}
