"""The table of backends: one row each, imported when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from crucible.backends.base import Backend, NotInstalled
from crucible.backends.settings import BackendSettings
from crucible.core.errors import UnknownName


@dataclass(frozen=True)
class Row:
    """`target` is `module:callable`, called with the settings. `install` is the command that brings it."""

    target: str
    install: str


ROWS: Mapping[str, Row] = {
    "local": Row("crucible.backends.local:LocalBackend", "pip install crucible-ml"),
    "rehearsal": Row("crucible.backends.rehearsal:connected", "pip install crucible-ml"),
}


def names(rows: Mapping[str, Row] = ROWS) -> tuple[str, ...]:
    """Every backend there is, installed or not, without importing one."""
    return tuple(rows)


def get_backend(name: str, settings: BackendSettings, rows: Mapping[str, Row] = ROWS) -> Backend:
    """A new backend of that name. Raises UnknownName, or NotInstalled when what it imports is missing."""
    row = rows.get(name)
    if row is None:
        raise UnknownName("backend", name, rows, fix="`crucible backends` lists them.")
    return _load(name, row)(settings)


def _load(name: str, row: Row) -> Callable[[BackendSettings], Backend]:
    module, _, attribute = row.target.partition(":")
    try:
        loaded = import_module(module)
    except ImportError as error:
        what = f"The backend {name!r} is not installed."
        raise NotInstalled(what, why=f"{error}.", fix=f"Run: {row.install}", backend=name) from error
    return cast("Callable[[BackendSettings], Backend]", getattr(loaded, attribute))
