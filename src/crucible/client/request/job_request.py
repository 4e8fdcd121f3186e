"""What is asked for, from flags, a job file or keywords to one JobSpec: read, merged, validated.

Each of them gives a partial mapping of the spec's own fields, with tables for `resources`, `retries`, `keep`, `env`
and `secrets`. An argument that is spelt like a field fills it; for any other a table of `Fills` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from crucible.client.request.parse import (
    read_data,
    read_env_file,
    read_kind,
    read_market,
    read_names,
    read_secrets,
    read_variables,
)
from crucible.client.request.pythons import SubmitHost
from crucible.core.compute.resources import format_duration, format_memory, parse_duration, parse_memory
from crucible.core.compute.tiers import get_tier
from crucible.core.errors import BadInput
from crucible.core.job.spec import DataInput, JobSpec
from crucible.core.job.tags import parse_tags
from crucible.core.routing.plan_request import Goal

PartialSpec = dict[str, object]
"""A partial JobSpec: its own fields, as far as they were given."""
Label = Callable[[str], str]
"""What an argument is called in errors: `--memory`; `job.yaml, line 3: memory`; `memory_gb`."""


_OF_THE_PAYLOAD = frozenset({"command", "environment", "source", "in_place", "bundle"})
"""Fields that follow from what is run."""


@dataclass(frozen=True)
class ParseContext:
    """What a parser knows besides the value: what errors call it, and where its paths and variables come from."""

    label: str
    host: SubmitHost


@dataclass(frozen=True)
class FieldMapping:
    """The field that an argument fills, `resources.cpus` for one of a table, and how its value is read."""

    field: str
    parse: Callable[[Any, ParseContext], object] = lambda value, _: value


def text_parser(parse: Callable[[str], object]) -> Callable[[Any, ParseContext], object]:
    """Return a parser of text whose errors say where the text was given."""

    def read(value: object, context: ParseContext) -> object:
        try:
            return parse(str(value))
        except BadInput as error:
            error.what = f"{context.label}: {error.what}"
            raise

    return read


MEMORY = text_parser(parse_memory)
DURATION = text_parser(parse_duration)
MARKET = text_parser(read_market)
KIND = text_parser(read_kind)


def parse_names(value: Any, _: ParseContext) -> tuple[str, ...]:
    return read_names((value,) if isinstance(value, str) else value)


def parse_variables(value: Any, context: ParseContext) -> dict[str, str]:
    return read_variables(_pairs(value), context.host.environ, context.label)


def parse_env_files(value: Any, context: ParseContext) -> dict[str, str]:
    return {name: text for file in value for name, text in read_env_file(context.host.folder / file).items()}


def parse_secrets(value: Any, context: ParseContext) -> dict[str, str]:
    return read_secrets(_pairs(value), context.label)


def parse_data(value: Any, context: ParseContext) -> tuple[DataInput, ...]:
    return read_data(_pairs(value), context.host.folder, context.label)


def _pairs(value: Any) -> list[str]:
    """`NAME=VALUE` texts, of a list as it is or of a table; None stands for no value."""
    if not isinstance(value, Mapping):
        return list(value)
    return [name if item is None else f"{name}={item}" for name, item in value.items()]


@dataclass(frozen=True)
class ArgumentReader:
    """One of those who give arguments: the command line, a job file, or keywords."""

    mappings: Mapping[str, FieldMapping]
    label: Label
    host: SubmitHost

    def read(self, given: Mapping[str, object]) -> tuple[PartialSpec, Goal]:
        """Return the fields of the job and the goal; arguments that fill neither are passed over.

        Raises BadInput in the words of this layer for what no job or goal can have.
        """
        found: PartialSpec = {}
        filled: dict[str, str] = {}
        for name, value in given.items():
            fills = self.mappings.get(name) or _same_name(name)
            if fills is None or value is None or value is False or value in ((), {}, []):
                continue
            parsed = fills.parse(value, ParseContext(self.label(name), self.host))
            first = filled.setdefault(fills.field, name)
            if first != name and isinstance(parsed, str) and found.get(fills.field) != parsed:
                both = f"{self.label(first)} and {self.label(name)}"
                raise BadInput(f"{both} contradict each other.", fix="Give one of them.")
            table, _, entry = fills.field.rpartition(".")
            found = _merge_fields(found, {table: {entry: parsed}} if table else {entry: parsed})
        self._split_backends(found)
        goal = self.goal({name: found.pop(name) for name in Goal.model_fields if name in found})
        self.check(found)
        return found, goal

    def check(self, fields: PartialSpec) -> None:
        """Raise BadInput for what is out of bounds whatever the code is."""
        make_spec({"command": ("true",), **fields}, self.field_label)

    def goal(self, fields: PartialSpec) -> Goal:
        try:
            return Goal.model_validate(fields)
        except ValidationError as error:
            raise validation_error(error, self.field_label) from error

    def field_label(self, field: str) -> str:
        """What this layer calls a field of the spec."""
        spelt = {fills.field: name for name, fills in self.mappings.items() if name != field}
        table, _, _ = field.partition(".")
        inside = next((name for path, name in spelt.items() if path.partition(".")[0] == table), table)
        return self.label(field if field in self.mappings else spelt.get(field, inside))

    def _split_backends(self, found: PartialSpec) -> None:
        """`rehearsal,local` is a backend and its fallback."""
        backend, fallback = found.get("backend"), cast(tuple[str, ...], found.get("fallback", ()))
        if backend is None and not fallback:
            return
        first, *others = read_names(() if backend is None else (str(backend),)) or ("",)
        if backend is not None and not first:
            where = self.label("backend")
            raise BadInput(f"{where} names no place.", fix="`crucible backends` lists them.", field="backend")
        found["fallback"] = tuple(name for name in read_names((*others, *fallback)) if name != first)
        if first:
            found["backend"] = first


def _same_name(name: str) -> FieldMapping | None:
    known = JobSpec.model_fields.keys() | Goal.model_fields.keys()
    return FieldMapping(name) if name in known - _OF_THE_PAYLOAD else None


def merge(base: PartialSpec, over: PartialSpec) -> PartialSpec:
    """Merge onto `base`: scalars override, tables merge, tags and data append; data of the same name is replaced.

    A backend also replaces the fallback of the base.
    """
    joined = _merge_fields(base, over)
    if over.get("backend") is not None:
        joined["fallback"] = over.get("fallback", ())
    return joined


def _merge_fields(base: PartialSpec, over: PartialSpec) -> PartialSpec:
    joined = {**base, **over}
    for name in base.keys() & over.keys():
        before, value = base[name], over[name]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            joined[name] = {**before, **value}
        elif name == "tags" and isinstance(before, tuple) and isinstance(value, tuple):
            joined[name] = (*before, *(tag for tag in value if tag not in before))
        elif name == "data" and isinstance(before, tuple) and isinstance(value, tuple):
            replaced = {item.name for item in value}
            joined[name] = (*(item for item in before if item.name not in replaced), *value)
    return joined


def make_spec(fields: PartialSpec, name_of: Label) -> JobSpec:
    """Return the job. Raises BadInput naming the argument that is out of bounds, as `name_of` calls its field."""
    tier = fields.get("tier")
    parse_tags(cast(tuple[str, ...], fields.get("tags", ())))
    try:
        return JobSpec.model_validate({**fields, "tier": get_tier(str(tier)).id if tier else None})
    except ValidationError as error:
        raise validation_error(error, name_of) from error


def validation_error(error: ValidationError, name_of: Label) -> BadInput:
    """The first thing that a validation found, in words and with units."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    field = ".".join(part for part in path if not part.isdigit())
    leaf = field.rpartition(".")[2]
    message = _bound(leaf, first["type"], first.get("ctx", {}))
    said = first["msg"].removeprefix("Value error, ")
    if not field:
        what = f"{said[0].upper()}{said[1:]}."
    else:
        what = f"{name_of(field)} {message}." if message else f"{name_of(field)}: {said}."
    fix = _fix(leaf, first["input"]) or "`crucible run --help` explains the options."
    return BadInput(what, why=_value(leaf, first["input"]), fix=fix, field=".".join(path))


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
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "string_type": "is a text",
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
