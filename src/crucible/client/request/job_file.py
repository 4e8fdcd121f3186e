"""Job files: a run written down as YAML, TOML or JSON, as a partial job and what to run."""

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
    """A number alone stands for this field of its table."""
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
    "grace": FieldMapping("grace_seconds", DURATION),
}
"""What fields of a job file fill that are spelt or written in another way than in a JobSpec."""


def read_job_file(shown: str, flags: CodeSource) -> tuple[CodeSource, PartialSpec]:
    """What the file says to run, under what `flags` say of that, and of the job. Its paths start at its folder."""
    path = (flags.folder / Path(shown).expanduser()).resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise not_found(path, shown) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{shown} cannot be read.", why=str(error), fix="Name a text file in UTF-8.") from error
    read = _parse(text, path.suffix, shown)
    host = replace(flags.host, folder=path.parent)
    fields, _ = ArgumentReader(SPELLING, read.where, host).read(_given(read.file))
    return _code_source(read, host, flags), fields


def _given(file: JobFile) -> dict[str, object]:
    """What the file says of the job; variables as texts."""
    env = {name: None if value is None else format_argument(value) for name, value in file.env.items()}
    return {**{name: getattr(file, name) for name in JobFile.model_fields if name not in WHAT_TO_RUN}, "env": env}


def _code_source(read: _Read, host: SubmitHost, flags: CodeSource) -> CodeSource:
    file = read.file
    kind = next(name for name in PAYLOADS if getattr(file, name) is not None)
    model = None if file.model is None else _model(file.model, host.folder, read.where(kind))
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
        label=read.where(kind),
    )


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


def _model(said: JobModel, folder: Path, where: str) -> ModelOptions:
    from crucible.client.model_plugins.configs import FORMATS, read_table

    if isinstance(said.config, dict):
        config = said.config
    elif Path(said.config).suffix in FORMATS:
        config = read_table(said.config, folder, f"{where}: config")
    else:
        fix = f"Write {{epochs: 3}}, or name a file that ends in {', '.join(FORMATS)}."
        raise BadInput(f"{where}: config is a table, or the path of a file with one.", fix=fix, field="model")
    return ModelOptions(folder, config, (), said.plugin, said.input, said.callbacks)


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
