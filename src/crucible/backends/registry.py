"""The table of backends. Each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from crucible.backends.base import Backend, NotInstalled
from crucible.backends.context import BackendContext
from crucible.backends.settings import BackendSettings
from crucible.core.errors import UnknownName


@dataclass(frozen=True)
class BackendRow:
    """`target` is `module:callable`, called with the context. `install` is the command that installs it.

    `settings` is `module:class` of the model of its settings, which can be imported without the backend's packages.
    """

    target: str
    install: str
    settings: str = "crucible.backends.settings:BackendSettings"


ROWS: Mapping[str, BackendRow] = {
    "local": BackendRow(
        "crucible.backends.local:LocalBackend",
        "pip install crucible-ml",
        "crucible.backends.local.settings:LocalSettings",
    ),
    "rehearsal": BackendRow(
        "crucible.backends.rehearsal:make_backend",
        "pip install crucible-ml",
        "crucible.backends.rehearsal.settings:RehearsalSettings",
    ),
    "ssh": BackendRow(
        "crucible.backends.ssh.backend:SshBackend",
        "pip install crucible-ml",
        "crucible.backends.ssh.settings:SshSettings",
    ),
}


def names(rows: Mapping[str, BackendRow] = ROWS) -> tuple[str, ...]:
    """Return the names of all backends, installed or not, without importing one."""
    return tuple(rows)


def connect_command(name: str, rows: Mapping[str, BackendRow] = ROWS) -> str | None:
    """Return the command that connects a server to this backend; None if it does not exist."""
    return f"crucible backends connect {name}" if name in rows else None


def settings_model(name: str, rows: Mapping[str, BackendRow] = ROWS) -> type[BackendSettings]:
    """Return the model of the backend's settings, without importing the backend. Raises UnknownName."""
    row = _find(name, rows)
    return cast("type[BackendSettings]", _load(name, row.settings, row.install))


def get_backend(name: str, context: BackendContext[Any], rows: Mapping[str, BackendRow] = ROWS) -> Backend:
    """Return a new backend of that name. Raises UnknownName, or NotInstalled if a dependency is missing."""
    row = _find(name, rows)
    return cast("Callable[[BackendContext[Any]], Backend]", _load(name, row.target, row.install))(context)


def _find(name: str, rows: Mapping[str, BackendRow]) -> BackendRow:
    row = rows.get(name)
    if row is None:
        raise UnknownName("backend", name, rows, fix="`crucible backends` lists them.")
    return row


def _load(name: str, target: str, install: str) -> object:
    module, _, attribute = target.partition(":")
    try:
        return cast("object", getattr(import_module(module), attribute))
    except ImportError as error:
        what = f"The backend {name!r} is not installed."
        raise NotInstalled(what, why=f"{error}.", fix=f"Run: {install}", backend=name) from error
