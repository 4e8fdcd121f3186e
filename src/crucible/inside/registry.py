"""Look up models by name: the entry points `crucible.models` of the packages installed in this Python.

[project.entry-points."crucible.models"]
logistic = "my_package.model:Logistic"
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from crucible.inside.model import BadPlugin, check_plugin

if TYPE_CHECKING:
    from crucible.inside.model import BaseModel

GROUP = "crucible.models"
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_VALUE = re.compile(rf"{_NAME}\s*:\s*{_NAME}\s*(\[.*\])?")


class UnknownModel(LookupError):
    """No installed package has a model of this name."""


@dataclass(frozen=True)
class ModelEntry:
    """An entry point that is not loaded. `value` is `module:attribute`."""

    name: str
    value: str
    distribution: str
    version: str


def models() -> list[ModelEntry]:
    """Return all models, sorted by name, without importing them."""
    return sorted(dict.fromkeys(_entries()), key=lambda found: (found.name, found.value))


def get_model(name: str) -> type[BaseModel]:
    """Return the model class of this name. Raises UnknownModel, BadPlugin, and the errors of importing it."""
    found = find(name)
    if not _VALUE.fullmatch(found.value):
        raise BadPlugin(
            f"{name}: its entry point {found.value!r} does not name a class; "
            f'write it as `{name} = "package.module:Class"` under [project.entry-points."{GROUP}"]'
        )
    entry = metadata.EntryPoint(found.name, found.value, GROUP)
    return check_plugin(name, entry.load())


def find(name: str) -> ModelEntry:
    """Return the entry point of this name. Raises UnknownModel, and BadPlugin if two packages claim it."""
    known = models()
    named = [found for found in known if found.name == name]
    if not named:
        raise UnknownModel(_unknown(name, [found.name for found in known]))
    if len({found.value for found in named}) > 1:
        claims = " and ".join(f"{found.distribution} ({found.value})" for found in named)
        raise BadPlugin(f"{name}: two packages define it: {claims}; uninstall one of them")
    return named[0]


def _entries() -> Iterator[ModelEntry]:
    for distribution in metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                name = str(distribution.metadata["Name"])
                yield ModelEntry(entry.name, entry.value, name, str(distribution.version))


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        hint = f"Did you mean {near[0]!r}?"
    elif known:
        hint = f"Known: {', '.join(known)}."
    else:
        hint = f"No package of {sys.executable} has any."
    return f"There is no model {name!r}. {hint}"
