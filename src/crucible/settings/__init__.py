"""Settings, each with its origin.

The first source that sets a value wins: a flag, a `CRUCIBLE_*` variable, `./crucible.toml`, `[tool.crucible]` in
`./pyproject.toml`, the user's `config.toml`, `crucible login`, the default. Only app, cli and client read settings;
they pass values down, and no other room reads the environment.
"""

from crucible.settings.backend_tables import load_backend_tables
from crucible.settings.load import default_logins, default_user_config, load_settings
from crucible.settings.setting import Setting
from crucible.settings.settings import HIDDEN, NAMES, RULES, SERVER_NAMES, Settings

__all__ = [
    "HIDDEN",
    "NAMES",
    "RULES",
    "SERVER_NAMES",
    "Setting",
    "Settings",
    "default_logins",
    "default_user_config",
    "load_backend_tables",
    "load_settings",
]
