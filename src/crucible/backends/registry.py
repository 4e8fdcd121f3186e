"""The table of backends. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from crucible.backends.base import Backend, NotInstalled
from crucible.backends.settings import BackendSettings
from crucible.core.errors import UnknownName


@dataclass(frozen=True)
class BackendRow:
    """`target` is `module:callable`, called with the settings. `install` is the command that installs it.

    `connect` is the command that connects a server to it, if more is needed than its name in the setting `backends`.
    It is shown beside offers of a backend that is not connected.
    """

    target: str
    install: str
    connect: str = ""


ROWS: Mapping[str, BackendRow] = {
    "local": BackendRow("crucible.backends.local:LocalBackend", "pip install crucible-ml"),
    "rehearsal": BackendRow("crucible.backends.rehearsal:make_backend", "pip install crucible-ml"),
}


def names(rows: Mapping[str, BackendRow] = ROWS) -> tuple[str, ...]:
    """Return the names of all backends, installed or not, without importing one."""
    return tuple(rows)


def connect_command(name: str, connected: Iterable[str], rows: Mapping[str, BackendRow] = ROWS) -> str | None:
    """Return the command that adds this backend to a server with the `connected` ones; None if it does not exist."""
    row = rows.get(name)
    if row is None:
        return None
    return row.connect or f"crucible down, then CRUCIBLE_BACKENDS={','.join((*connected, name))} crucible up"


def get_backend(name: str, settings: BackendSettings, rows: Mapping[str, BackendRow] = ROWS) -> Backend:
    """Return a new backend of that name. Raises UnknownName, or NotInstalled if a dependency is missing."""
    row = rows.get(name)
    if row is None:
        raise UnknownName("backend", name, rows, fix="`crucible backends` lists them.")
    return _load(name, row)(settings)


def _load(name: str, row: BackendRow) -> Callable[[BackendSettings], Backend]:
    module, _, attribute = row.target.partition(":")
    try:
        loaded = import_module(module)
    except ImportError as error:
        what = f"The backend {name!r} is not installed."
        raise NotInstalled(what, why=f"{error}.", fix=f"Run: {row.install}", backend=name) from error
    return cast("Callable[[BackendSettings], Backend]", getattr(loaded, attribute))
