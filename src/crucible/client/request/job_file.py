"""Reads a job file (YAML, TOML or JSON): what to run, and the fields of the job."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from crucible.client.payload.base import CodeSource, ModelOptions, not_found
from crucible.client.payload.suggestions import nearest
from crucible.client.request.job_request import (
    DURATION,
    MARKET,
    MEMORY,
    ArgumentReader,
    FieldMapping,
    ParseContext,
    PartialSpec,
    parse_data,
    parse_env_files,
    parse_names,
    parse_no_outputs,
    parse_patterns,
    parse_secrets,
    parse_variables,
)
from crucible.client.request.pythons import SubmitHost, absolute_python
from crucible.core.errors import BadInput
from crucible.core.job.job_file import PAYLOADS, WHAT_TO_RUN, JobFile, JobModel, format_argument
from crucible.core.job.spec import Kind

if TYPE_CHECKING:
    import yaml


def _counted(field: str) -> Callable[[Any, ParseContext], object]:
    """Return a parser that takes a plain number for this field of the table."""
    return lambda value, _: {field: value} if isinstance(value, int) else value


SPELLING: Mapping[str, FieldMapping] = {
    "market": FieldMapping("market", MARKET),
    "regions": FieldMapping("regions", parse_names),
    "cpus": FieldMapping("resources.cpus"),
    "memory": FieldMapping("resources.memory_bytes", MEMORY),
    "gpus": FieldMapping("resources.gpus"),
    "gpu": FieldMapping("gpu_types", parse_names),
    "gpu_memory": FieldMapping("resources.gpu_memory_bytes", MEMORY),
    "time": FieldMapping("resources.seconds", DURATION),
    "env_files": FieldMapping("env", parse_env_files),
    "env": FieldMapping("env", parse_variables),
    "secrets": FieldMapping("secrets", parse_secrets),
    "data": FieldMapping("data", parse_data),
    "retries": FieldMapping("retries", _counted("user")),
    "retry_wait": FieldMapping("retries.wait_seconds", DURATION),
    "keep": FieldMapping("keep", _counted("latest")),
    "outputs": FieldMapping("outputs", parse_patterns),
    "no_outputs": FieldMapping("outputs", parse_no_outputs),
    "max_wait": FieldMapping("max_wait_seconds", DURATION),
    "grace": FieldMapping("grace_seconds", DURATION),
}
"""Fields of a job file whose name or syntax differs from that of the JobSpec field."""


def read_job_file(name: str, flags: CodeSource) -> tuple[CodeSource, PartialSpec]:
    """Return what to run and the fields of the job; `flags` override the file. Its paths are relative to its folder."""
    path = (flags.folder / Path(name).expanduser()).resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise not_found(path, name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name} cannot be read.", why=str(error), fix="Name a text file in UTF-8.") from error
    parsed = _parse(text, path.suffix, name)
    host = replace(flags.host, folder=path.parent)
    fields, _ = ArgumentReader(SPELLING, parsed.where, host).read(_job_fields(parsed.file))
    return _code_source(parsed, host, flags), fields


def _job_fields(file: JobFile) -> dict[str, object]:
    """Return the fields of the file that belong to the job, not to what to run; variables as text."""
    env = {name: None if value is None else format_argument(value) for name, value in file.env.items()}
    return {**{name: getattr(file, name) for name in JobFile.model_fields if name not in WHAT_TO_RUN}, "env": env}


def _code_source(parsed: _ParsedFile, host: SubmitHost, flags: CodeSource) -> CodeSource:
    file = parsed.file
    kind = next(name for name in PAYLOADS if getattr(file, name) is not None)
    model = None if file.model is None else _model(file.model, host.folder, parsed.where(kind))
    return replace(
        flags,
        host=host,
        kind=kind if kind in ("code", "shell", "model") else "path",
        target=getattr(file, kind) if file.model is None else file.model.name,
        arguments=(*map(format_argument, file.args), *flags.arguments),
        model=flags.model.merged_onto(model) if flags.model and model else model or flags.model,
        python=absolute_python(flags.python, flags.folder) if flags.python else file.python,
        include=(*file.include, *flags.include),
        entry=flags.entry or file.entry,
        ref=flags.ref or file.ref,
        in_place=flags.in_place or file.in_place,
        label=parsed.where(kind),
    )


def parse_job_file(text: str, suffix: str, name: str) -> JobFile:
    return _parse(text, suffix, name).file


@dataclass(frozen=True)
class _ParsedFile:
    """A job file, its name, and the line of each field."""

    file: JobFile
    lines: Mapping[str, int]
    name: str

    def where(self, field: str) -> str:
        """Return `job.yaml, line 3: memory`."""
        return f"{_where(self.name, self.lines, field)}: {field}"


def _parse(text: str, suffix: str, name: str) -> _ParsedFile:
    content, lines = _load(text, suffix, name)
    if not isinstance(content, dict):
        raise BadInput(f"{name} is not a job file.", why="It does not contain a table of fields.", fix=_INIT)
    if "command" in content and "bundle" in content:
        raise BadInput(f"{name} is a submitted job, not a job file.", fix=_INIT)
    try:
        return _ParsedFile(JobFile.model_validate(content), lines, name)
    except ValidationError as error:
        raise _explain(error, lines, name) from error


def _model(model: JobModel, folder: Path, where: str) -> ModelOptions:
    from crucible.client.model_plugins.configs import FORMATS, read_table

    if isinstance(model.config, dict):
        config = model.config
    elif Path(model.config).suffix in FORMATS:
        config = read_table(model.config, folder, f"{where}: config")
    else:
        fix = f"Write {{epochs: 3}}, or name a file that ends in {', '.join(FORMATS)}."
        raise BadInput(f"{where}: config must be a table, or the path of a file with one.", fix=fix, field="model")
    return ModelOptions(folder, config, (), model.plugin, model.input, model.callbacks)


_INIT = "`crucible init` writes an example; docs/job-file.md explains the fields."


def _load(text: str, suffix: str, name: str) -> tuple[object, Mapping[str, int]]:
    """Return the content, and from YAML the line of each field."""
    import yaml

    try:
        # Keep numbers as text: as an argument of a program 3.10 must not become 3.1.
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
        raise BadInput(f"{name} is not valid {suffix[1:].upper()}.", why=why, fix=_INIT) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"{name} is not valid YAML{where}.", why=f"{problem}.", fix=_INIT) from error


def _with_numbers(content: object, parsed: object) -> object:
    """Return the content with the model's options as numbers: they are values, not words of a command line."""
    if isinstance(content, dict) and isinstance(parsed, dict) and "model" in content:
        return {**content, "model": parsed["model"]}
    return content


_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))


def _as_written(content: object, nodes: Mapping[str, yaml.Node]) -> object:
    """Return the content with arguments and variables exactly as written: `True`, `yes`, `007` and `1e3` stay text."""
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


def _where(name: str, lines: Mapping[str, int], field: str) -> str:
    return f"{name}, line {lines[field]}" if field in lines else name


def _explain(error: ValidationError, lines: Mapping[str, int], name: str) -> BadInput:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    where = _where(name, lines, field)
    if first["type"] == "extra_forbidden":
        *above, unknown = map(str, first["loc"])
        near = nearest(unknown, JobModel.model_fields if above else JobFile.model_fields)
        fix = f"Did you mean {near!r}?" if near else _INIT
        within = f" in {field!r}" if above else ""
        return BadInput(f"{where}: there is no field {unknown!r}{within}.", fix=fix, field=field, meant=near)
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
    "missing": "this field is required",
    "model_type": "this must be a name or a table",
    "string_too_short": "this must not be empty",
    "string_type": "this must be text",
    "int_type": "this must be a whole number",
    "int_parsing": "this must be a whole number",
    "int_from_float": "this must be a whole number",
    "float_type": "this must be a number",
    "float_parsing": "this must be a number",
    "bool_type": "this must be true or false",
    "bool_parsing": "this must be true or false",
    "tuple_type": "this must be a list",
    "dict_type": "this must be a table",
    "greater_than_equal": "this is too small",
}


def _message(kind: str, message: str) -> str:
    return _KINDS.get(kind) or message.removeprefix("Value error, ")
