"""Load the settings from flags, variables, files and the last login; the first that sets a value wins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible.core.errors import BadInput, UnknownName
from crucible.settings.parsers import path
from crucible.settings.setting import Setting, SettingRule
from crucible.settings.settings import NAMES, RULES, Settings

HOME = "CRUCIBLE_HOME"
BACKENDS, CONNECTED = "backends", "connected"
"""A table of the user's file, with a table of settings for each backend; its list `connected` is the setting."""


@dataclass(frozen=True)
class Layer:
    """One source of settings: its raw values, and its name for a setting's origin."""

    origin: Callable[[str], str]
    values: Mapping[str, object]


def default_user_config(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own `config.toml`."""
    return _own_folder(environ) / "config.toml"


def default_logins(environ: Mapping[str, str]) -> Path:
    """Return the path of the file where `crucible login` keeps servers and tokens."""
    return _own_folder(environ) / "logins.json"


def _own_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's configuration folder; $CRUCIBLE_HOME if set, so that it holds everything of Crucible."""
    if environ.get(HOME):
        return path(environ[HOME])
    from platformdirs import user_config_path

    return user_config_path("crucible", appauthor=False)


def read_layers(
    flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, user_config: Path | None
) -> Iterator[Layer]:
    """Yield all sources, strongest first. Raises BadInput (unreadable file) or UnknownName (unknown setting)."""
    variable_names = {name: f"CRUCIBLE_{name.upper()}" for name in NAMES}
    yield Layer(lambda name: f"--{name.replace('_', '-')}", flags)
    variables = {name: environ[key] for name, key in variable_names.items() if environ.get(key)}
    yield Layer(lambda name: variable_names[name], variables)
    own = user_config or default_user_config(environ)
    yield _file(folder / "crucible.toml", (), own)
    yield _file(folder / "pyproject.toml", ("tool", "crucible"), own)
    yield _file(own, (), own)
    yield Layer(lambda _name: "crucible login", _last_login(default_logins(environ)))


def _file(file: Path, table: tuple[str, ...], own: Path) -> Layer:
    """Read the settings of a TOML file, or of a table in it; a missing file sets nothing.

    `own` is the user's file, the only one that may have settings of backends.
    """
    try:
        values: object = read_toml(file)
    except BadInput:
        if not table:  # a broken pyproject.toml must not stop Crucible
            raise
        values = {}
    for key in table:
        values = values.get(key, {}) if isinstance(values, dict) else {}
    settings = values if isinstance(values, dict) else {}
    _check_names(file, settings)
    backends = settings.get(BACKENDS)
    if isinstance(backends, dict):
        if file != own:
            raise _misplaced_backends(file, own)
        settings = {**settings, BACKENDS: backends.get(CONNECTED)}
    return Layer(lambda _name: str(file), settings)


def read_toml(file: Path) -> dict[str, object]:
    """Return the content of a TOML file; nothing if it is missing. Raises BadInput."""
    import tomllib  # imported late: most folders have no settings file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:  # invalid TOML or not text
        raise BadInput(
            f"{file} cannot be read as settings.", why=str(error), fix="Correct or remove the file."
        ) from error


def _misplaced_backends(file: Path, own: Path) -> BadInput:
    return BadInput(
        f"{file} has settings of backends, which only your own configuration may have.",
        why="A folder may come from somebody else, who must not decide what your server connects to.",
        fix=f"Remove its tables [{BACKENDS}…]. Use `crucible backends connect NAME`, or put them into {own}.",
    )


def _last_login(file: Path) -> Mapping[str, object]:
    """Return the server last logged in to. A broken file is reported by the code that needs its token."""
    try:
        return {"server": json.loads(file.read_text(encoding="utf-8")).get("current")}
    except (OSError, ValueError, AttributeError):
        return {}


def _check_names(file: Path, settings: Mapping[str, object]) -> None:
    for name in settings:
        if name not in NAMES:
            raise UnknownName("setting", name, NAMES, fix=f"Correct it in {file}.")


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_config: Path | None = None,
) -> Settings:
    """Load the settings as seen from `folder` (default: the current one).

    Raises BadInput for a bad file or value, and UnknownName for an unknown setting in a file.
    """
    environ = os.environ if environ is None else environ
    layers = tuple(read_layers(flags or {}, environ, folder or Path.cwd(), user_config))
    return Settings(**{name: _resolve(layers, name, rule) for name, rule in RULES.items()})


def _resolve(layers: Sequence[Layer], name: str, rule: SettingRule[Any]) -> Setting[Any]:
    for layer in layers:
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
