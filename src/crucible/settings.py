"""Settings, each with where it came from.

The first of these that says something wins: a flag, a `CRUCIBLE_*` variable, `./crucible.toml` or
`[tool.crucible]` of `./pyproject.toml`, the user's own `config.toml`, `crucible login`, the default. Only app, cli
and client read them; values are passed down, and nobody else looks at the environment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from crucible.core.channels import Channel
from crucible.core.errors import BadInput, UnknownName
from crucible.core.secret import Secret
from crucible.wire.limits import DEFAULT_LIMIT

DEFAULT_RESERVE = 1024**3
LONGEST_LIFE = 30 * 86400

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value and, in words, who said it."""

    value: T
    origin: str = "default"


@dataclass(frozen=True)
class DatabaseUrl:
    """Prints without its password; `reveal()` is the one way out."""

    _url: str = field(repr=False)

    def reveal(self) -> str:
        return self._url

    def __str__(self) -> str:
        hidden = re.sub(r"(//[^:/?@]*):.*@", r"\1:***@", self._url, count=1)
        return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)

    def __repr__(self) -> str:
        return f"DatabaseUrl({str(self)!r})"


@dataclass(frozen=True)
class Settings:
    """`home`: state folder. `server`, `token`: a server named by the user (None: the embedded one).

    `places`: the backends that jobs of the Python client go along, in this order, when they name none (None: all).
    `bundle_limit`: bytes of code one job may carry. `request_seconds`: deadline of one request.
    `project`: where jobs go unless they say (None: the user's only project, or the default one).
    `ask_above`: dollars; `run` asks before a job that may cost more.
    `start_seconds`: how long the embedded server may take to be ready.
    `database`: a PostgreSQL server (None: a file in `home`). `key_file`: the deployment's key, for servers that
    share a database (None: the one in `home`). `backends`: the places a server is connected to.
    `local_folder`: where machines on this computer keep their files (None: `home`).
    `rehearsal_state`: the folder of a simulated cloud that several deployments use (None: one of its own).
    `machine_seconds`: the life of a rented machine whose job has no time limit; the job goes on on another.
    `lease_seconds`: how long an agent on a rented machine goes on without contact.
    `agents_url`: by which agents reach the server through a proxy before it (None: where it listens itself).
    `channel`: how agents talk with the server where both would do, `https` or `store`.
    `store`: where bundles, logs and outputs are kept, a path or a URL (None: a folder in `home`).
    `store_endpoint`, `store_region`, `store_access_key`, `store_secret_key`: how a bucket is reached (None: as the
    provider's own environment variables say).
    `disk_reserve`: bytes of the store's disk that stay free. `store_quota`: bytes the store may hold (None: no limit).
    `tls_certificate`, `tls_key`: PEM files with which the server encrypts by itself (None: it does not).
    `behind_proxy`: a proxy before the server encrypts. `proxies`: addresses and networks that it connects from, if not
    from this computer. `public_url`: how others than this computer call the server.
    `oidc_issuer`, `oidc_client_id`, `oidc_client_secret`: the OpenID provider that people sign in with, and who the
    server is there (None: there is none). `oidc_name`: what people call it. `oidc_domains`: those of the e-mail
    addresses that may come in (None: any). `oidc_create_users`: the project of which people that no administrator
    made become members (None: they do not come in).
    `shared_computer`: the server's users trust each other, so their jobs may run beside each other on this computer.
    `models_python`: the Python whose model plugins a server offers (None: it offers none).
    `webhook_hosts`: hosts and networks of one's own that notifications may be sent to; the open internet always.
    `prune_after`: seconds after which what an ended job stored is removed by itself (None: never).
    """

    home: Setting[Path]
    server: Setting[str | None]
    token: Setting[Secret | None]
    places: Setting[tuple[str, ...] | None]
    bundle_limit: Setting[int]
    request_seconds: Setting[float]
    start_seconds: Setting[float]
    ask_above: Setting[float]
    project: Setting[str | None]
    database: Setting[DatabaseUrl | None]
    key_file: Setting[Path | None]
    backends: Setting[tuple[str, ...]]
    local_folder: Setting[Path | None]
    rehearsal_state: Setting[Path | None]
    machine_seconds: Setting[float]
    lease_seconds: Setting[float]
    agents_url: Setting[str | None]
    channel: Setting[Channel]
    store: Setting[str | None]
    store_endpoint: Setting[str | None]
    store_region: Setting[str | None]
    store_access_key: Setting[Secret | None]
    store_secret_key: Setting[Secret | None]
    disk_reserve: Setting[int]
    store_quota: Setting[int | None]
    prune_after: Setting[float | None]
    shared_computer: Setting[bool]
    tls_certificate: Setting[Path | None]
    tls_key: Setting[Path | None]
    behind_proxy: Setting[bool]
    proxies: Setting[tuple[str, ...]]
    public_url: Setting[str | None]
    models_python: Setting[str | None]
    webhook_hosts: Setting[tuple[str, ...]]
    oidc_issuer: Setting[str | None]
    oidc_client_id: Setting[str | None]
    oidc_client_secret: Setting[Secret | None]
    oidc_name: Setting[str]
    oidc_domains: Setting[tuple[str, ...] | None]
    oidc_create_users: Setting[str | None]


@dataclass(frozen=True)
class _Layer:
    """One place that says things: `values` as written there, `origin` in words."""

    origin: Callable[[str], str]
    values: Mapping[str, object]


STORE_NAMES = ("store", "store_endpoint", "store_region", "store_access_key", "store_secret_key")
ROOM_NAMES = ("disk_reserve", "store_quota", "prune_after")
PROXY_NAMES = ("behind_proxy", "proxies")
PEOPLE_NAMES = ("shared_computer", "tls_certificate", "tls_key", "public_url", "webhook_hosts", *PROXY_NAMES)
OIDC_NAMES = (
    "oidc_issuer",
    "oidc_client_id",
    "oidc_client_secret",
    "oidc_name",
    "oidc_domains",
    "oidc_create_users",
)
RENTING_NAMES = ("agents_url", "channel", "rehearsal_state", "machine_seconds", "lease_seconds")
PLACE_NAMES = ("database", "key_file", "backends", "local_folder", "models_python")
SERVER_NAMES = (*PLACE_NAMES, *RENTING_NAMES, *STORE_NAMES, *ROOM_NAMES, *PEOPLE_NAMES, *OIDC_NAMES)
"""What only a server reads."""
HIDDEN = frozenset({"token", "database", "store", "store_access_key", "store_secret_key", "oidc_client_secret"})
"""Not repeated when they are wrong."""
WAITING_NAMES = ("request_seconds", "start_seconds")
CLIENT_NAMES = ("home", "server", "token", "project", "places", "bundle_limit", "ask_above", *WAITING_NAMES)
NAMES = (*CLIENT_NAMES, *SERVER_NAMES)


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
        places=_pick(layers, "places", _names, lambda: None),
        bundle_limit=_pick(layers, "bundle_limit", _size, lambda: DEFAULT_LIMIT),
        request_seconds=_pick(layers, "request_seconds", _seconds, lambda: 30.0),
        start_seconds=_pick(layers, "start_seconds", _seconds, lambda: 15.0),
        ask_above=_pick(layers, "ask_above", _dollars, lambda: 5.0),
        project=_pick(layers, "project", _text, lambda: None),
        database=_pick(layers, "database", _database, lambda: None),
        key_file=_pick(layers, "key_file", _path, lambda: None),
        backends=_pick(layers, "backends", _names, lambda: ("local",)),
        local_folder=_pick(layers, "local_folder", _path, lambda: None),
        rehearsal_state=_pick(layers, "rehearsal_state", _path, lambda: None),
        machine_seconds=_pick(layers, "machine_seconds", _life, lambda: 24 * 3600.0),
        lease_seconds=_pick(layers, "lease_seconds", _life, lambda: 6 * 3600.0),
        agents_url=_pick(layers, "agents_url", _url, lambda: None),
        channel=_pick(layers, "channel", _channel, lambda: Channel.HTTPS),
        store=_pick(layers, "store", _place, lambda: None),
        store_endpoint=_pick(layers, "store_endpoint", _url, lambda: None),
        store_region=_pick(layers, "store_region", _text, lambda: None),
        store_access_key=_pick(layers, "store_access_key", _secret, lambda: None),
        store_secret_key=_pick(layers, "store_secret_key", _secret, lambda: None),
        disk_reserve=_pick(layers, "disk_reserve", _size_or_none, lambda: DEFAULT_RESERVE),
        store_quota=_pick(layers, "store_quota", _size, lambda: None),
        prune_after=_pick(layers, "prune_after", _days, lambda: None),
        shared_computer=_pick(layers, "shared_computer", _flag, lambda: False),
        tls_certificate=_pick(layers, "tls_certificate", _path, lambda: None),
        tls_key=_pick(layers, "tls_key", _path, lambda: None),
        behind_proxy=_pick(layers, "behind_proxy", _flag, lambda: False),
        proxies=_pick(layers, "proxies", _networks, lambda: ()),
        public_url=_pick(layers, "public_url", _url, lambda: None),
        models_python=_pick(layers, "models_python", _interpreter, lambda: None),
        webhook_hosts=_pick(layers, "webhook_hosts", _names, lambda: ()),
        oidc_issuer=_pick(layers, "oidc_issuer", _url, lambda: None),
        oidc_client_id=_pick(layers, "oidc_client_id", _text, lambda: None),
        oidc_client_secret=_pick(layers, "oidc_client_secret", _secret, lambda: None),
        oidc_name=_pick(layers, "oidc_name", _text, lambda: "OpenID"),
        oidc_domains=_pick(layers, "oidc_domains", _domains, lambda: None),
        oidc_create_users=_pick(layers, "oidc_create_users", _project, lambda: None),
    )


def default_home() -> Path:
    from platformdirs import user_state_path

    return user_state_path("crucible", appauthor=False)


def default_user_config() -> Path:
    from platformdirs import user_config_path

    return user_config_path("crucible", appauthor=False) / "config.toml"


def default_logins() -> Path:
    """Where `crucible login` keeps which server is in use, and its token."""
    return default_user_config().with_name("logins.json")


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
    yield _Layer(lambda _name: "crucible login", _logged_in(default_logins()))


def _file(path: Path, table: tuple[str, ...]) -> _Layer:
    """The settings in a TOML file, or in a table of it; a file that is not there says nothing."""
    try:
        values: object = _toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (ValueError, OSError) as error:  # no TOML, or no text
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


def _toml(text: str) -> dict[str, object]:
    import tomllib  # most folders have no settings to read

    return tomllib.loads(text)


def _logged_in(path: Path) -> Mapping[str, object]:
    """The server last logged in to. What is wrong with the file is told by what needs the token in it."""
    try:
        return {"server": json.loads(path.read_text(encoding="utf-8")).get("current")}
    except (OSError, ValueError, AttributeError):
        return {}


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
                f"The setting {name!r} cannot be {'***' if name in HIDDEN else repr(value)}.",
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


def _interpreter(value: object) -> str:
    """An interpreter, or the folder of a virtual environment that has one."""
    path = _path(value)
    inner = path / "bin" / "python"
    return str(inner if inner.is_file() else path)


def _place(value: object) -> str:
    """A URL as it is; a path made absolute, because the server runs in another folder."""
    text = _text(value)
    return text if "://" in text else str(_path(text))


def _url(value: object) -> str:
    text = _text(value).rstrip("/")
    if not text.startswith(("http://", "https://")):
        raise ValueError("It has to begin with http:// or https://.")
    return text


def _database(value: object) -> DatabaseUrl:
    text = _text(value)
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("It has to begin with postgresql://.")
    return DatabaseUrl(text)


def _flag(value: object) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.strip().lower() not in known:
        raise ValueError("It has to be true or false.")
    return known[value.strip().lower()]


def _names(value: object) -> tuple[str, ...]:
    """`local, rehearsal` or a list; `none` is no name at all."""
    words = value if isinstance(value, list) else _text(value).split(",")
    names = tuple(dict.fromkeys(_text(word) for word in words))
    return () if names == ("none",) else names


def _domains(value: object) -> tuple[str, ...]:
    """In small letters, each with a dot."""
    names = tuple(name.lower().removeprefix("@") for name in _names(value))
    if not names or not all(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", name) for name in names):
        raise ValueError("It has to be domains such as example.org.")
    return names


def _project(value: object) -> str:
    from crucible.core.people import checked_project

    try:
        return checked_project(_text(value))
    except BadInput as error:
        raise ValueError(f"{error.what} {error.why}") from error


def _channel(value: object) -> Channel:
    text = _text(value)
    if text not in (Channel.HTTPS, Channel.STORE):
        raise ValueError("It has to be https or store.")
    return Channel(text)


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


def _size_or_none(value: object) -> int:
    """A size, or 0."""
    return 0 if value in (0, "0") else _size(value)


def _days(value: object) -> float:
    """`30d`, or a number of days, as seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("It has to be a number of days such as 30d.")
    days = float(str(value).strip().lower().removesuffix("d"))
    if not 0 < days <= 36500:
        raise ValueError("It has to be between 0 and 36500 days.")
    return days * 86400


def _life(value: object) -> float:
    """Seconds, up to 30 days."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("It has to be a number of seconds.")
    seconds = float(value)
    if not 10 <= seconds <= LONGEST_LIFE:
        raise ValueError("It has to be between 10 seconds and 30 days.")
    return seconds


def _networks(value: object) -> tuple[str, ...]:
    import ipaddress

    names = _names(value)
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} is no address or network, such as 10.0.0.7 or 10.0.0.0/24.") from None
    return names


def _dollars(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("It has to be a number of dollars.")
    dollars = float(value)
    if not 0 <= dollars <= 1e9:
        raise ValueError("It has to be between 0 and 1000000000 dollars.")
    return dollars


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("It has to be a number of seconds.")
    seconds = float(value)
    if not 0 < seconds <= 3600:
        raise ValueError("It has to be between 0 and 3600 seconds.")
    return seconds
