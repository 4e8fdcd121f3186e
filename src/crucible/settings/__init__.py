"""Settings, each with where it came from.

The first of these that says something wins: a flag, a `CRUCIBLE_*` variable, `./crucible.toml` or
`[tool.crucible]` of `./pyproject.toml`, the user's own `config.toml`, `crucible login`, the default. Only app, cli
and client read them; values are passed down, and nobody else looks at the environment.
"""

from crucible.settings.known import HIDDEN, NAMES, SERVER_NAMES, Settings
from crucible.settings.layers import default_logins, default_user_config
from crucible.settings.loading import load_settings
from crucible.settings.setting import Setting

__all__ = [
    "HIDDEN",
    "NAMES",
    "SERVER_NAMES",
    "Setting",
    "Settings",
    "default_logins",
    "default_user_config",
    "load_settings",
]
