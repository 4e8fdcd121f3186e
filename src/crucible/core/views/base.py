"""The base classes of responses."""

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

SOMETIMES = "x-sometimes"


def _as_promised(schema: dict[str, Any]) -> None:
    """Drop the defaults, which are only for reading older servers, and do not require `sometimes` fields."""
    properties = schema.get("properties", {})
    optional = {name for name, field in properties.items() if field.pop(SOMETIMES, False)}
    for field in properties.values():
        field.pop("default", None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in optional]


class View(BaseModel):
    # Built at first use: a command needs only a few of them.
    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_as_promised,
    )

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json")


class PartialView(View):
    """A view with fields that are not in every response: those declared with `sometimes` are left out unless set."""

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # keeps the schema
        data = serialize(self)
        for name in _partial(type(self)) - self.model_fields_set:
            data.pop(name, None)
        return data


def sometimes(default: Any, *, repr: bool = True) -> Any:
    """Declare a field of a PartialView that is not in every response."""
    return Field(default=default, repr=repr, json_schema_extra={SOMETIMES: True})


@cache
def _partial(kind: type[View]) -> frozenset[str]:
    extras = ((name, field.json_schema_extra) for name, field in kind.model_fields.items())
    return frozenset(name for name, extra in extras if isinstance(extra, dict) and SOMETIMES in extra)
