"""A job request: arguments from flags, a job file or keywords become one JobSpec.

Three steps. An `ArgumentReader` turns the arguments of one source into a partial spec: fields of a JobSpec, with tables
for `resources`, `retries`, `keep`, `env` and `secrets`. `merge` puts one partial spec over another. `make_spec` is
the one validation; its errors name a value as the user wrote it.
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
from crucible.core.patterns import broken_rule
from crucible.core.routing.plan_request import Goal

PartialSpec = dict[str, object]
"""Some fields of a JobSpec; those that were not set are missing."""

_FROM_PAYLOAD = frozenset({"command", "environment", "source", "in_place", "bundle"})
"""Fields that follow from the code; no argument fills them."""


@dataclass(frozen=True)
class ParseContext:
    """How errors name the argument, and the host that its paths and variables come from."""

    label: str
    host: SubmitHost


@dataclass(frozen=True)
class FieldMapping:
    """The field that an argument fills (`resources.cpus`: one of a table) and how its value is parsed."""

    field: str
    parse: Callable[[Any, ParseContext], object] = lambda value, _: value


def text_parser(parse: Callable[[str], object]) -> Callable[[Any, ParseContext], object]:
    """Return a parser of text whose errors begin with the argument's label."""

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


def parse_patterns(value: Any, _: ParseContext) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def parse_no_outputs(_: Any, __: ParseContext) -> tuple[str, ...]:
    """Return the patterns of a job whose flag says that no outputs are kept."""
    return ()


def parse_variables(value: Any, context: ParseContext) -> dict[str, str]:
    return read_variables(_pairs(value), context.host.environ, context.label)


def parse_env_files(value: Any, context: ParseContext) -> dict[str, str]:
    return {name: text for file in value for name, text in read_env_file(context.host.folder / file).items()}


def parse_secrets(value: Any, context: ParseContext) -> dict[str, str]:
    return read_secrets(_pairs(value), context.label)


def parse_data(value: Any, context: ParseContext) -> tuple[DataInput, ...]:
    return read_data(_pairs(value), context.host.folder, context.label)


def _pairs(value: Any) -> list[str]:
    """Return `NAME=VALUE` texts, from a list of them or a table; a value of None gives `NAME` alone."""
    if not isinstance(value, Mapping):
        return list(value)
    return [name if item is None else f"{name}={item}" for name, item in value.items()]


@dataclass(frozen=True)
class ArgumentReader:
    """Reads the arguments of one source: the command line, a job file, or the keywords of the SDK.

    An argument named like a field fills it; `mappings` has the others. `label` says how the user writes an
    argument: `--memory`; `job.yaml, line 3: memory`; `memory_gb`.
    """

    mappings: Mapping[str, FieldMapping]
    label: Callable[[str], str]
    host: SubmitHost
    help: str = "`crucible run --help` explains the options."

    def read(self, arguments: Mapping[str, object]) -> tuple[PartialSpec, Goal]:
        """Return the fields of the job and the goal that these arguments fill; other arguments are ignored.

        Raises BadInput for a value that no job or goal can have, whatever the code is.
        """
        fields = self._parse(arguments)
        self._split_backends(fields)
        goal = {name: fields.pop(name) for name in Goal.model_fields if name in fields}
        make_spec({"command": ("true",), **fields}, self)
        try:
            return fields, Goal.model_validate(goal)
        except ValidationError as error:
            raise validation_error(error, self) from error

    def argument_for(self, field: str) -> str:
        """Return the argument that fills this field of a spec, or else another one of the same table."""
        if field in self.mappings:
            return field
        by_field = {mapping.field: name for name, mapping in self.mappings.items()}
        table = field.partition(".")[0]
        beside = next((name for path, name in by_field.items() if path.partition(".")[0] == table), table)
        return by_field.get(field, beside)

    def _parse(self, arguments: Mapping[str, object]) -> PartialSpec:
        fields: PartialSpec = {}
        filled_by: dict[str, str] = {}
        for name, value in arguments.items():
            mapping = self.mappings.get(name) or _field_with_same_name(name)
            if mapping is None or value is None or value is False or value in ((), {}, []):
                continue
            parsed = mapping.parse(value, ParseContext(self.label(name), self.host))
            first = filled_by.setdefault(mapping.field, name)
            # Tables and lists of two arguments are merged; of two texts (--market, --spot), or with none
            # (--no-outputs), only one can be meant.
            is_single = isinstance(parsed, str) or parsed == ()
            if first != name and is_single and fields.get(mapping.field) != parsed:
                both = f"{self.label(first)} and {self.label(name)}"
                raise BadInput(f"{both} contradict each other.", fix="Give one of them.")
            table, _, entry = mapping.field.rpartition(".")
            fields = _merge_fields(fields, {table: {entry: parsed}} if table else {entry: parsed})
        return fields

    def _split_backends(self, fields: PartialSpec) -> None:
        """Split a list of backends (`rehearsal,local`) into the backend and its fallback."""
        backend, fallback = fields.get("backend"), cast(tuple[str, ...], fields.get("fallback", ()))
        if backend is None:
            if fallback:
                fields["fallback"] = read_names(fallback)
            return
        backends = read_names((backend,) if isinstance(backend, str) else cast(tuple[str, ...], backend))
        if not backends:
            what = f"{self.label('backend')} names no backend."
            raise BadInput(what, fix="`crucible backends` lists them.", field="backend")
        names = read_names((*backends, *fallback))
        fields["backend"], fields["fallback"] = names[0], names[1:]


def _field_with_same_name(argument: str) -> FieldMapping | None:
    known = JobSpec.model_fields.keys() | Goal.model_fields.keys()
    return FieldMapping(argument) if argument in known - _FROM_PAYLOAD else None


def merge(base: PartialSpec, overrides: PartialSpec) -> PartialSpec:
    """Merge onto `base`: scalars override, tables merge, tags and data append; data of the same name is replaced.

    A backend also replaces the fallback of the base. So does a market, or `spot_fallback`, which means spot.
    """
    merged = _merge_fields(base, overrides)
    if overrides.get("backend") is not None:
        merged["fallback"] = overrides.get("fallback", ())
    if overrides.get("market") is not None or overrides.get("spot_fallback"):
        merged["market"] = overrides.get("market")
        merged["spot_fallback"] = overrides.get("spot_fallback", False)
    return merged


def _merge_fields(base: PartialSpec, overrides: PartialSpec) -> PartialSpec:
    merged = {**base, **overrides}
    for name in base.keys() & overrides.keys():
        before, value = base[name], overrides[name]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = {**before, **value}
        elif name == "tags" and isinstance(before, tuple) and isinstance(value, tuple):
            merged[name] = (*before, *(tag for tag in value if tag not in before))
        elif name == "data" and isinstance(before, tuple) and isinstance(value, tuple):
            replaced = {item.name for item in value}
            merged[name] = (*(item for item in before if item.name not in replaced), *value)
    return merged


def make_spec(fields: PartialSpec, reader: ArgumentReader | None = None) -> JobSpec:
    """Return the job. Raises BadInput for a value out of bounds, in the words of `reader` (default: the spec's own)."""
    tier = fields.get("tier")
    parse_tags(cast(tuple[str, ...], fields.get("tags", ())))
    try:
        return JobSpec.model_validate({**fields, "tier": get_tier(str(tier)).id if tier else None})
    except ValidationError as error:
        raise validation_error(error, reader) from error


def validation_error(error: ValidationError, reader: ArgumentReader | None = None) -> BadInput:
    """Return the first failure of a validation as an error that names the argument and writes its value with units."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    leaf = field.rpartition(".")[2]
    argument = reader.argument_for(field) if reader and field else field
    label = reader.label(argument) if reader and field else field
    bound = broken_rule(first) or _bound(leaf, first["type"], first.get("ctx", {}))
    message = first["msg"].removeprefix("Value error, ")
    if not field:
        what = f"{message[0].upper()}{message[1:]}."
    else:
        what = f"{label} {bound}." if bound else f"{label}: {message}."
    fix = _fix(leaf, first["input"]) or (reader.help if reader else "Give it another value.")
    return BadInput(what, why=_value(leaf, first["input"]), fix=fix, field=argument)


def _bound(name: str, kind: str, limits: Mapping[str, object]) -> str:
    """Return a rule such as `must be at least 16 MiB`; empty for a check that has a message of its own."""
    if kind == "greater_than_equal":
        return f"must be at least {_amount(name, limits['ge'])}"
    if kind == "greater_than":
        return f"must be more than {_amount(name, limits['gt'])}"
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
        "string_type": "must be text",
        "tuple_type": "must be a list",
        "model_type": "must be a table",
        "dict_type": "must be a table",
        "string_too_short": "must not be empty",
        "string_too_long": f"must not be longer than {limits.get('max_length')} characters",
        "too_long": f"may be given at most {limits.get('max_length')} times",
    }.get(kind, "")


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
    if name.endswith("_bytes") and isinstance(value, int) and 0 < value < 1024:
        return f"A number without a unit is bytes; write {value}G for {value} GiB."
    return ""
