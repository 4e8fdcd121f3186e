"""The options of a model: its config is declared once, and checked wherever a config is used.

    schema = {"epochs": Option(int, default=10, minimum=1, maximum=1000, help="Passes over the data.")}

The declaration is exchanged as JSON, so that a config can be refused before a job is submitted.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

_REQUIRED: Any = object()
TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict}
_TYPE_LABELS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "list": "a list",
    "dict": "a table",
}
_NUMBERS = ("int", "float")
MAX_OPTIONS = 500
Number = Union[int, float]


class BadSchema(ValueError):
    """An invalid declaration of options."""


class BadConfig(ValueError):
    """A config that the schema does not allow; each of `problems` is one sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Option:
    """One option: `int`, `float`, `str`, `bool`, `list` or `dict`.

    Without a default it is required; `default=None` makes it optional. `minimum` and `maximum` are inclusive limits of
    numbers, or of the length of texts and lists; `choices` are the allowed values. Raises BadSchema for an invalid
    declaration, such as a default outside its limits.
    """

    type: type
    default: Any = field(default=_REQUIRED)
    minimum: Optional[Number] = None
    maximum: Optional[Number] = None
    choices: tuple[Any, ...] = ()
    help: str = ""

    def __post_init__(self) -> None:
        if self.type not in TYPES.values():
            raise BadSchema(f"an option is one of {', '.join(TYPES)}, not {self.type!r}")
        if not isinstance(self.help, str):
            raise BadSchema(f"help is a text, not {self.help!r}")
        object.__setattr__(self, "choices", tuple(self.choices))
        self._check_limits()
        for value in self.choices:
            self._check_own("the choice", value)
        if not self.required and self.default is not None:
            self._check_own("the default", self.default)

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def kind(self) -> str:
        return self.type.__name__

    def check(self, name: str, value: object) -> object:
        """Return the value converted to the option's type. Raises BadConfig."""
        if value is None and not self.required and self.default is None:
            return None
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = _as_float(value)
        wrong = not isinstance(value, self.type) or (isinstance(value, bool) and self.type is not bool)
        if wrong or (isinstance(value, float) and not math.isfinite(value)):
            raise BadConfig([f"{name} must be {_TYPE_LABELS[self.kind]}, not {value!r:.80}"])
        if self.choices and value not in self.choices:
            raise BadConfig([self._not_chosen(name, value)])
        self._check_size(name, value)
        return value

    def as_json(self) -> dict[str, object]:
        """Return the declaration as JSON, without unset fields."""
        doc: dict[str, object] = {"type": self.kind, "required": self.required}
        if not self.required:
            doc["default"] = self.default
        limits = {"minimum": self.minimum, "maximum": self.maximum, "help": self.help or None}
        doc.update({key: value for key, value in limits.items() if value is not None})
        return {**doc, "choices": list(self.choices)} if self.choices else doc

    def _check_limits(self) -> None:
        for limit in (self.minimum, self.maximum):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float))):
                raise BadSchema(f"a limit is a number, not {limit!r}")
            if limit is not None and self.kind in ("bool", "dict"):
                raise BadSchema(f"{_TYPE_LABELS[self.kind]} has no limits")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise BadSchema(f"the minimum {self.minimum} is above the maximum {self.maximum}")

    def _check_own(self, what: str, value: object) -> None:
        try:
            self.check(what, value)
        except BadConfig as error:
            raise BadSchema(str(error)) from error

    def _check_size(self, name: str, value: Any) -> None:
        size = value if self.kind in _NUMBERS else len(value) if self.kind in ("str", "list") else 0
        unit = "" if self.kind in _NUMBERS else " characters long" if self.kind == "str" else " items long"
        actual = f"not {value!r:.80}" if self.kind in _NUMBERS else f"not {size}"
        if self.minimum is not None and size < self.minimum:
            raise BadConfig([f"{name} must be at least {self.minimum}{unit}, {actual}"])
        if self.maximum is not None and size > self.maximum:
            raise BadConfig([f"{name} must be at most {self.maximum}{unit}, {actual}"])

    def _not_chosen(self, name: str, value: object) -> str:
        known = [str(choice) for choice in self.choices]
        return f"{name} must be one of {', '.join(known)}, not {value!r:.80}{_did_you_mean(str(value), known)}"


Schema = Mapping[str, Option]


def check_schema(schema: object) -> None:
    """Raise BadSchema unless `schema` is a mapping of names to options."""
    if not isinstance(schema, Mapping):
        raise BadSchema(f"schema is a dict of names and Options, not {type(schema).__name__}")
    if len(schema) > MAX_OPTIONS:
        raise BadSchema(f"schema has {len(schema)} options; at most {MAX_OPTIONS} are allowed")
    for name, option in schema.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise BadSchema(f"the name of the option {name!r:.80} is not an identifier")
        if not isinstance(option, Option):
            raise BadSchema(f"the option {name!r} is {type(option).__name__}, not an Option")


def check_config(schema: Optional[Schema], config: object) -> dict[str, Any]:
    """Return the config with its defaults; without a schema, unchanged. Raises BadConfig with all problems."""
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise BadConfig([f"a config is a table of names and values, not {type(config).__name__}"])
    if schema is None:
        return dict(config)
    problems = [_unknown(name, schema) for name in config if name not in schema]
    found: dict[str, Any] = {}
    for name, option in schema.items():
        try:
            found[name] = _value(name, option, config)
        except BadConfig as error:
            problems.extend(error.problems)
    if problems:
        raise BadConfig(problems)
    return found


def read_schema(doc: Mapping[str, Mapping[str, Any]]) -> dict[str, Option]:
    """Return the schema from the `as_json` documents of its options. Raises BadSchema."""
    try:
        return {name: _option(fields) for name, fields in doc.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise BadSchema(f"a schema that cannot be read: {error!r}") from error


def _option(doc: Mapping[str, Any]) -> Option:
    known = ("minimum", "maximum", "choices", "help")
    fields = {key: doc[key] for key in known if key in doc}
    if not doc["required"]:
        fields["default"] = doc["default"]
    return Option(TYPES[doc["type"]], **fields)


def _as_float(value: int) -> float:
    """Convert to a float; a number that is too large becomes infinite, which is then refused."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _value(name: str, option: Option, config: Mapping[str, object]) -> object:
    if name in config:
        return option.check(name, config[name])
    if option.required:
        raise BadConfig([f"{name} is required: {_TYPE_LABELS[option.kind]}"])
    default = option.default
    return default.copy() if isinstance(default, (list, dict)) else default


def _unknown(name: str, schema: Schema) -> str:
    known = f"; there are {', '.join(schema)}" if schema else "; this model has none"
    return f"there is no option {name!r}{_did_you_mean(name, list(schema)) or known}"


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
