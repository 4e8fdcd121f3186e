"""Job files: a run written down as YAML, TOML or JSON, read and joined with the flags."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from crucible.client.inputs import read_data, read_variables
from crucible.client.payload.base import Request, missing, nearest
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput
from crucible.core.jobfile import PAYLOADS, JobFile
from crucible.core.resources import parse_duration, parse_memory


@dataclass(frozen=True)
class JobFileRun:
    """What a job file asks for: the kind of payload and its text, how to take it up, and the wishes."""

    kind: str
    target: str
    request: Request
    wishes: Wishes


def read_job_file(shown: str, request: Request) -> JobFileRun:
    """The run that the file describes, its paths taken from the file's folder, flags in `request` winning."""
    path = (request.folder / Path(shown).expanduser()).resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path, shown) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{shown} cannot be read.", why=str(error)) from error
    file = parse_job_file(text, path.suffix, shown)
    around = replace(request.around, folder=path.parent)
    taken = replace(
        request,
        around=around,
        arguments=(*map(str, file.args), *request.arguments),
        python=request.python or file.python,
        include=(*file.include, *request.include),
        entry=request.entry or file.entry,
        ref=request.ref or file.ref,
        in_place=request.in_place or file.in_place,
    )
    kind = next(name for name in PAYLOADS if getattr(file, name) is not None)
    return JobFileRun(kind, getattr(file, kind), taken, _wishes(file, path.parent, around.environ))


def parse_job_file(text: str, suffix: str, shown: str) -> JobFile:
    content, lines = _load(text, suffix, shown)
    if not isinstance(content, dict):
        raise BadInput(f"{shown} is no job file.", why="It holds no table of fields.", fix=_INIT)
    if "command" in content and "bundle" in content:
        raise BadInput(f"{shown} is a submitted job, not a job file.", fix=_INIT)
    try:
        return JobFile.model_validate(content)
    except ValidationError as error:
        raise _explain(error, lines, shown) from error


_INIT = "`crucible init` writes an example; docs/job-file.md explains the fields."


def _load(text: str, suffix: str, shown: str) -> tuple[object, Mapping[str, int]]:
    """The content, and the line of each field where the format tells."""
    import yaml

    try:
        if suffix == ".toml":
            return tomllib.loads(text), {}
        if suffix == ".json":
            return json.loads(text), {}
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = {
            str(key.value): key.start_mark.line + 1
            for key, _ in (node.value if isinstance(node, yaml.MappingNode) else ())
        }
        return yaml.safe_load(text), lines
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{shown} is not valid {suffix[1:].upper()}.", why=str(error), fix=_INIT) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"{shown} is not valid YAML{where}.", why=f"{problem}.", fix=_INIT) from error


def _explain(error: ValidationError, lines: Mapping[str, int], shown: str) -> BadInput:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    where = f"{shown}, line {lines[field]}" if field in lines else shown
    if first["type"] == "extra_forbidden":
        near = nearest(field, JobFile.model_fields)
        fix = f"Did you mean {near!r}?" if near else _INIT
        return BadInput(f"{where}: there is no field {field!r}.", fix=fix, field=field, meant=near)
    message = first["msg"].removeprefix("Value error, ")
    what = f"{where}: {field}: {message}." if field else f"{where}: {message}."
    return BadInput(what, fix=_INIT, field=field, line=lines.get(field))


def _wishes(file: JobFile, folder: Path, environ: Mapping[str, str]) -> Wishes:
    named = [name if value is None else f"{name}={value}" for name, value in file.env.items()]
    data = [f"{k}={v}" for k, v in file.data.items()] if isinstance(file.data, dict) else list(file.data)
    retries = {"user": file.retries} if isinstance(file.retries, int) else (file.retries or {})
    return Wishes(
        name=file.name,
        kind=file.kind,
        backend=file.backend,
        tier=file.tier,
        resources=_resources(file),
        env=read_variables(named, [folder / name for name in file.env_files], environ),
        data=read_data(data, folder),
        retries=retries,
        grace_seconds=None if file.grace is None else parse_duration(str(file.grace)),
        tags=file.tags,
    )


def _resources(file: JobFile) -> dict[str, float | int]:
    said: dict[str, float | int | None] = {
        "cpus": file.cpus,
        "memory_bytes": None if file.memory is None else parse_memory(str(file.memory)),
        "gpus": file.gpus,
        "gpu_memory_bytes": None if file.gpu_memory is None else parse_memory(str(file.gpu_memory)),
        "seconds": None if file.time is None else parse_duration(str(file.time)),
    }
    return {name: value for name, value in said.items() if value is not None}
