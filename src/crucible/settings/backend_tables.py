"""Settings of backends in the user's `config.toml`: a table `[backends.NAME]` for each.

    [backends]
    connected = ["local", "moon"]     # what the setting `backends` says, which cannot be in the same file

    [backends.moon]
    region = "eu"

Only the user's own file may have them. A folder's `crucible.toml` comes with code that others wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from crucible.core.errors import BadInput
from crucible.core.settings_source import SettingsSource
from crucible.settings.load import BACKENDS, CONNECTED, default_user_config, read_toml
from crucible.settings.settings import Settings

RENAMED_SETTINGS = {"rehearsal_state": ("rehearsal", "state")}
"""Settings of 0.1.0 that have become fields of a backend's table."""


def load_backend_tables(
    settings: Settings, *, environ: Mapping[str, str] | None = None, user_config: Path | None = None
) -> dict[str, SettingsSource]:
    """Return the tables by backend. Raises BadInput for a file that cannot be read, or a value that is not a table."""
    file = user_config or default_user_config(os.environ if environ is None else environ)
    tables = read_toml(file).get(BACKENDS)
    found: dict[str, SettingsSource] = {}
    for name, values in tables.items() if isinstance(tables, dict) else ():
        if name == CONNECTED:
            continue
        if not isinstance(values, dict):
            raise BadInput(
                f"{BACKENDS}.{name} in {file} is not a table.",
                fix=f"Write [{BACKENDS}.{name}] with the settings of the backend below it.",
            )
        found[name] = SettingsSource(f"[{BACKENDS}.{name}] in {file}", values)
    return _with_renamed(settings, found)


def _with_renamed(settings: Settings, tables: Mapping[str, SettingsSource]) -> dict[str, SettingsSource]:
    """Return the tables with the values of renamed settings added; a table's own value wins."""
    merged = dict(tables)
    for name, (backend, key) in RENAMED_SETTINGS.items():
        old = getattr(settings, name)
        if old.value is not None:
            table = tables.get(backend, SettingsSource(old.origin, {}))
            values, origins = {key: str(old.value), **table.values}, {key: old.origin} | dict(table.origins)
            if key in table.values:
                origins.pop(key)
            merged[backend] = SettingsSource(table.origin, values, origins)
    return merged
