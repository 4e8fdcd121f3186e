"""The settings in force: of each, what the first says who says anything."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crucible.core.errors import BadInput
from crucible.settings.known import RULES, Settings
from crucible.settings.layers import Layer, layers
from crucible.settings.setting import Rule, Setting


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_config: Path | None = None,
) -> Settings:
    """The settings as seen from `folder` (unless given: the current one). A bad file or value is BadInput."""
    environ = os.environ if environ is None else environ
    said = tuple(layers(flags or {}, environ, folder or Path.cwd(), user_config))
    return Settings(**{name: _pick(said, name, rule) for name, rule in RULES.items()})


def _pick(said: Sequence[Layer], name: str, rule: Rule[Any]) -> Setting[Any]:
    for layer in said:
        value = layer.values.get(name)
        if value is None:
            continue
        origin = layer.origin(name)
        try:
            return Setting(rule.read(value), origin)
        except ValueError as error:
            raise BadInput(
                f"The setting {name!r} cannot be {'***' if rule.hidden else repr(value)}.",
                why=f"{error} It comes from {origin}.",
                fix=f"Change it in {origin}.",
            ) from error
    return Setting(rule.default())
