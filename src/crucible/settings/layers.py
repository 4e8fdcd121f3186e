"""Who says what a setting is: flags, variables, files and the last login, the first to be asked first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.core.errors import BadInput, UnknownName
from crucible.settings.known import NAMES
from crucible.settings.readers import path

HOME = "CRUCIBLE_HOME"


@dataclass(frozen=True)
class Layer:
    """One place that says things: `values` as written there, `origin` in words."""

    origin: Callable[[str], str]
    values: Mapping[str, object]


def default_user_config(environ: Mapping[str, str]) -> Path:
    """The user's own `config.toml`."""
    return _own_folder(environ) / "config.toml"


def default_logins(environ: Mapping[str, str]) -> Path:
    """Where `crucible login` keeps which server is in use, and its token."""
    return _own_folder(environ) / "logins.json"


def _own_folder(environ: Mapping[str, str]) -> Path:
    """What is the user's own, for all folders. $CRUCIBLE_HOME holds everything: with it gone, nothing is left."""
    if environ.get(HOME):
        return path(environ[HOME])
    from platformdirs import user_config_path

    return user_config_path("crucible", appauthor=False)


def layers(
    flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, user_config: Path | None
) -> Iterator[Layer]:
    """Raises BadInput for a file that cannot be read, UnknownName for one that names no setting."""
    named = {name: f"CRUCIBLE_{name.upper()}" for name in NAMES}
    yield Layer(lambda name: f"--{name.replace('_', '-')}", flags)
    variables = {name: environ[key] for name, key in named.items() if environ.get(key)}
    yield Layer(lambda name: named[name], variables)
    yield _file(folder / "crucible.toml", ())
    yield _file(folder / "pyproject.toml", ("tool", "crucible"))
    yield _file(user_config or default_user_config(environ), ())
    yield Layer(lambda _name: "crucible login", _logged_in(default_logins(environ)))


def _file(file: Path, table: tuple[str, ...]) -> Layer:
    """The settings in a TOML file, or in a table of it; a file that is not there says nothing."""
    try:
        values: object = _toml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (ValueError, OSError) as error:  # no TOML, or no text
        if table:  # a broken pyproject.toml of the user's project is not ours to complain about
            values = {}
        else:
            raise BadInput(
                f"{file} cannot be read as settings.", why=str(error), fix="Mend or remove the file."
            ) from error
    for key in table:
        values = values.get(key, {}) if isinstance(values, dict) else {}
    found = values if isinstance(values, dict) else {}
    _check_names(file, found)
    return Layer(lambda _name: str(file), found)


def _toml(text: str) -> dict[str, object]:
    import tomllib  # most folders have no settings to read

    return tomllib.loads(text)


def _logged_in(file: Path) -> Mapping[str, object]:
    """The server last logged in to. What is wrong with the file is told by what needs the token in it."""
    try:
        return {"server": json.loads(file.read_text(encoding="utf-8")).get("current")}
    except (OSError, ValueError, AttributeError):
        return {}


def _check_names(file: Path, found: Mapping[str, object]) -> None:
    for name in found:
        if name not in NAMES:
            raise UnknownName("setting", name, NAMES, fix=f"It stands in {file}.")
