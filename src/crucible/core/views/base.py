"""What every answer has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SOMETIMES = "x-sometimes"


class View(BaseModel):
    # Built at first use: a command needs a few of these.
    model_config = ConfigDict(
        frozen=True, extra="allow", defer_build=True, json_schema_serialization_defaults_required=True
    )

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json")


def sometimes(default: Any, *, repr: bool = True) -> Any:
    """A field that not every answer of its kind has."""
    return Field(default=default, repr=repr, json_schema_extra={SOMETIMES: True})
