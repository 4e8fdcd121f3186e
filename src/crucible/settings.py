"""Settings, each with where it came from.

The first of these that says something wins: a flag, a `CRUCIBLE_*` variable, `./crucible.toml` or
`[tool.crucible]` of `./pyproject.toml`, the user's own `config.toml`, the default. Only app, cli and client
read them; values are passed down, and nobody else looks at the environment.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from crucible.core.errors import BadInput, UnknownName
from crucible.core.secret import Secret
from crucible.wire.bundle import DEFAULT_LIMIT

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value and, in words, who said it."""

    value: T
    origin: str = "default"


@dataclass(frozen=True)
class Settings:
    """`home`: state folder. `server`, `token`: a server named by the user (None: the embedded one).

    `bundle_limit`: bytes of code one job may carry. `request_seconds`: deadline of one request.
    `start_seconds`: how long the embedded server may take to be ready.
    """

    home: Setting[Path]
    server: Setting[str | None]
    token: Setting[Secret | None]
    bundle_limit: Setting[int]
    request_seconds: Setting[float]
    start_seconds: Setting[float]


@dataclass(frozen=True)
class _Layer:
    """One place that says things: `values` as written there, `origin` in words."""

    origin: Callable[[str], str]
    values: Mapping[str, object]


NAMES = ("home", "server", "token", "bundle_limit", "request_seconds", "start_seconds")


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_config: Path | None = None,
) -> Settings:
    """The settings as seen from `folder` (unless given: the current one). A bad file or value is BadInput."""
    environ = os.environ if environ is None else environ
    layers = tuple(_layers(flags or {}, environ, folder or Path.cwd(), user_config))
    return Settings(
        home=_pick(layers, "home", _path, default_home),
        server=_pick(layers, "server", _url, lambda: None),
        token=_pick(layers, "token", _secret, lambda: None),
        bundle_limit=_pick(layers, "bundle_limit", _size, lambda: DEFAULT_LIMIT),
        request_seconds=_pick(layers, "request_seconds", _seconds, lambda: 30.0),
        start_seconds=_pick(layers, "start_seconds", _seconds, lambda: 15.0),
    )


def default_home() -> Path:
    from platformdirs import user_state_path

    return user_state_path("crucible", appauthor=False)


def default_user_config() -> Path:
    from platformdirs import user_config_path

    return user_config_path("crucible", appauthor=False) / "config.toml"


def _layers(
    flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, user_config: Path | None
) -> Iterator[_Layer]:
    named = {name: f"CRUCIBLE_{name.upper()}" for name in NAMES}
    yield _Layer(lambda name: f"--{name.replace('_', '-')}", flags)
    variables = {name: environ[key] for name, key in named.items() if environ.get(key)}
    yield _Layer(lambda name: named[name], variables)
    yield _file(folder / "crucible.toml", ())
    yield _file(folder / "pyproject.toml", ("tool", "crucible"))
    yield _file(user_config or default_user_config(), ())


def _file(path: Path, table: tuple[str, ...]) -> _Layer:
    """The settings in a TOML file, or in a table of it; a file that is not there says nothing."""
    try:
        values: object = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        if table:  # a broken pyproject.toml of the user's project is not ours to complain about
            values = {}
        else:
            raise BadInput(
                f"{path} cannot be read as settings.", why=str(error), fix="Mend or remove the file."
            ) from error
    for key in table:
        values = values.get(key, {}) if isinstance(values, dict) else {}
    found = values if isinstance(values, dict) else {}
    _check_names(path, found)
    return _Layer(lambda _name: str(path), found)


def _check_names(path: Path, found: Mapping[str, object]) -> None:
    for name in found:
        if name not in NAMES:
            raise UnknownName("setting", name, NAMES, fix=f"It stands in {path}.")


def _pick(layers: tuple[_Layer, ...], name: str, read: Callable[[object], T], default: Callable[[], T]) -> Setting[T]:
    for layer in layers:
        value = layer.values.get(name)
        if value is None:
            continue
        origin = layer.origin(name)
        try:
            return Setting(read(value), origin)
        except ValueError as error:
            raise BadInput(
                f"The setting {name!r} cannot be {value!r}.",
                why=f"{error} It comes from {origin}.",
                fix=f"Change it in {origin}.",
            ) from error
    return Setting(default())


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("It has to be text.")
    return value.strip()


def _secret(value: object) -> Secret:
    return Secret(_text(value))


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser().absolute()


def _url(value: object) -> str:
    text = _text(value).rstrip("/")
    if not text.startswith(("http://", "https://")):
        raise ValueError("It has to begin with http:// or https://.")
    return text


def _size(value: object) -> int:
    from crucible.core.resources import parse_memory

    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("It has to be a size such as 500M.")
    try:
        size = parse_memory(str(value))
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error
    if size <= 0:
        raise ValueError("It has to be above zero.")
    return size


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("It has to be a number of seconds.")
    seconds = float(value)
    if not 0 < seconds <= 3600:
        raise ValueError("It has to be between 0 and 3600 seconds.")
    return seconds
