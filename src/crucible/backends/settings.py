"""A backend's own settings: a model, filled from several sources, of which the later ones win.

The module of a model is imported to describe it, so it must not import a vendor's package.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from crucible.core.errors import BadInput, UnknownName
from crucible.core.secret import Secret
from crucible.core.settings_source import SettingsSource

MAX_VALUE = 32 * 1024
"""Characters of one value: enough for a key file."""
MAX_ITEMS = 1000
HIDDEN = "***"
_LINES = frozenset("\n\r\t")
"""Control characters that a secret may contain: a private key has several lines."""


def _to_secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("It must be text.")
    return Secret(value)


SecretValue = Annotated[Secret, PlainValidator(_to_secret), PlainSerializer(lambda _secret: HIDDEN)]
"""The type of a secret field."""


def setting(default: Any = ..., *, description: str, variables: Sequence[str] = (), option: str = "") -> Any:
    """Declare a field of a backend's settings.

    `variables`: the provider's own environment variables for it, which count after `CRUCIBLE_<BACKEND>_<FIELD>`.
    `option`: the option of `crucible backends connect` (default: the field's name, of a list in the singular).
    """
    more = {"variables": list(variables), "option": option}
    return Field(default, description=description, json_schema_extra=typing.cast("Any", more))


class BackendSettings(BaseModel):
    """The settings that every backend has. Each backend adds its own in a subclass."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    projects: tuple[str, ...] = setting(
        (),
        description="Projects whose jobs may run there. Without one: all projects; on computers that others use too, "
        "only users who operate this server.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: object, info: Any) -> object:
        """Split the text of a list at its commas. Refuse texts that are too long or have control characters."""
        declared = cls.model_fields[info.field_name]
        if isinstance(value, str) and _is_list(declared):
            value = [part.strip() for part in value.split(",") if part.strip()]
        items = value if isinstance(value, list | tuple) else [value]
        if len(items) > MAX_ITEMS:
            raise ValueError(f"It has {len(items)} items; at most {MAX_ITEMS} are allowed.")
        for item in items:
            _refuse_text(item.reveal() if isinstance(item, Secret) else item, _is_secret(declared))
        return value

    def secrets(self) -> dict[str, Secret]:
        """Return the secret fields that are set, by name."""
        return {name: value for name, value in self if isinstance(value, Secret)}


S = TypeVar("S", bound=BackendSettings)
S_co = TypeVar("S_co", bound=BackendSettings, covariant=True)


@dataclass(frozen=True)
class SettingField:
    """The description of a field."""

    name: str
    description: str
    kind: str
    """Its type, in words."""
    required: bool
    secret: bool
    many: bool
    """It is a list."""
    default: object
    option: str
    """Its option of `crucible backends connect`, without the dashes."""
    variables: tuple[str, ...]
    """Environment variables that set it; the first one wins."""


@dataclass(frozen=True)
class FilledSettings(Generic[S_co]):
    """Valid settings, and where each value comes from; a field that no source sets has no origin."""

    settings: S_co
    origins: Mapping[str, str]


class MissingSettings(BadInput):
    """Required settings are missing; `data["missing"]` has their names."""

    code = "missing_settings"


def describe(backend: str, model: type[BackendSettings]) -> tuple[SettingField, ...]:
    """Return the fields of a model, its own first."""
    own = [name for name in model.model_fields if name not in BackendSettings.model_fields]
    return tuple(_describe(backend, name, model.model_fields[name]) for name in (*own, *BackendSettings.model_fields))


def environment_source(backend: str, model: type[BackendSettings], environ: Mapping[str, str]) -> SettingsSource:
    """Return what the environment sets. Empty variables count as not set."""
    found = {
        each.name: next(variable for variable in each.variables if environ.get(variable))
        for each in describe(backend, model)
        if any(environ.get(variable) for variable in each.variables)
    }
    return SettingsSource("the environment", {name: environ[variable] for name, variable in found.items()}, found)


def fill(backend: str, model: type[S], sources: Iterable[SettingsSource]) -> FilledSettings[S]:
    """Return the settings that these sources set; later ones win.

    Raises UnknownName for an unknown setting, MissingSettings, and BadInput for a bad value, which is not repeated.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for source in sources:
        for name, value in source.values.items():
            if name not in model.model_fields:
                raise _unknown(backend, name, model, source)
            values[name], origins[name] = value, source.origins.get(name, source.origin)
    missing = [each for each in describe(backend, model) if each.required and each.name not in values]
    if missing:
        raise _missing(backend, missing)
    try:
        return FilledSettings(model.model_validate(values), origins)
    except ValidationError as error:
        raise _bad_value(backend, error, origins) from None


def stored_values(settings: BackendSettings, names: Iterable[str]) -> dict[str, object]:
    """Return the values of these fields as JSON, without secrets."""
    return settings.model_dump(mode="json", include=set(names) - settings.secrets().keys())


def _describe(backend: str, name: str, declared: FieldInfo) -> SettingField:
    more = declared.json_schema_extra if isinstance(declared.json_schema_extra, dict) else {}
    many = _is_list(declared)
    variables = typing.cast("list[str]", more.get("variables") or [])
    return SettingField(
        name=name,
        description=declared.description or "",
        kind=_kind(declared),
        required=declared.is_required(),
        secret=_is_secret(declared),
        many=many,
        default=None if declared.default is PydanticUndefined else declared.default,
        option=str(more.get("option") or (name.removesuffix("s") if many else name).replace("_", "-")),
        variables=(f"CRUCIBLE_{backend}_{name}".upper().replace("-", "_"), *variables),
    )


def _types(annotation: Any) -> frozenset[type]:
    """Return the types that an annotation consists of: of `Annotated[int, ...] | None`, `int` and `NoneType`."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType, Annotated):
        return frozenset().union(*(_types(argument) for argument in typing.get_args(annotation)))
    found = origin or annotation
    return frozenset({found}) if isinstance(found, type) else frozenset()


def _is_secret(declared: FieldInfo) -> bool:
    return Secret in _types(declared.annotation)


def _is_list(declared: FieldInfo) -> bool:
    return not _types(declared.annotation).isdisjoint({list, tuple, frozenset, set})


def _kind(declared: FieldInfo) -> str:
    found = _types(declared.annotation)
    if _is_list(declared):
        return "list"
    for kind, name in ((bool, "true or false"), (int, "whole number"), (float, "number")):
        if kind in found:
            return name
    return "path" if any(issubclass(each, PurePath) for each in found) else "text"


def _refuse_text(value: object, secret: bool) -> None:
    if not isinstance(value, str):
        return
    if len(value) > MAX_VALUE:
        raise ValueError(f"It has {len(value)} characters; at most {MAX_VALUE} are allowed.")
    bad = next((c for c in value if not c.isprintable() and not (secret and c in _LINES)), None)
    if bad is not None:
        raise ValueError(f"It contains the character U+{ord(bad):04X}, which is not printable.")


def _unknown(backend: str, name: str, model: type[BackendSettings], source: SettingsSource) -> UnknownName:
    origin = source.origins.get(name, source.origin)
    fix = f"Change it in {origin}. `crucible backends show {backend}` lists the settings."
    return UnknownName(f"setting of {backend}", name[:80], model.model_fields, fix=fix)


def _missing(backend: str, missing: Sequence[SettingField]) -> MissingSettings:
    options = " ".join(f"--{each.option} {'-' if each.secret else 'VALUE'}" for each in missing)
    variables = ", ".join(each.variables[0] for each in missing)
    return MissingSettings(
        f"The backend {backend!r} needs {' and '.join(each.name for each in missing)}.",
        why=" ".join(f"{each.name}: {each.description}" for each in missing),
        fix=f"crucible backends connect {backend} {options}; or set {variables} where the server starts.",
        missing=[each.name for each in missing],
    )


def _bad_value(backend: str, error: ValidationError, origins: Mapping[str, str]) -> BadInput:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "projects"
    why = first["msg"].removeprefix("Value error, ").replace("Input should", "It should")
    origin = origins.get(name, "the request")
    return BadInput(
        f"The setting {name!r} of the backend {backend!r} has an invalid value.",
        why=f"{why.rstrip('.')}. It comes from {origin}.",
        fix=f"Change it in {origin}. `crucible backends show {backend}` describes it.",
        field=name,
    )
