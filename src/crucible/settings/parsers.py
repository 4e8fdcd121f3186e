"""Parse the raw values of settings. Each parser raises ValueError with a sentence about what it accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from crucible.core.channels import Channel
from crucible.core.errors import BadInput
from crucible.core.secret import Secret


@dataclass(frozen=True)
class DatabaseUrl:
    """The URL of a database. Prints without its password; `reveal()` returns the whole URL."""

    _url: str = field(repr=False)

    def reveal(self) -> str:
        return self._url

    def __str__(self) -> str:
        hidden = re.sub(r"(//[^:/?@]*):.*@", r"\1:***@", self._url, count=1)
        return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)

    def __repr__(self) -> str:
        return f"DatabaseUrl({str(self)!r})"


MAX_LIFE_SECONDS = 30 * 86400


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("It must be text.")
    return value.strip()


def secret(value: object) -> Secret:
    return Secret(text(value))


def path(value: object) -> Path:
    return Path(text(value)).expanduser().absolute()


def interpreter(value: object) -> str:
    """Return the path of an interpreter, from its own path or from that of a virtual environment."""
    outer = path(value)
    inner = outer / "bin" / "python"
    return str(inner if inner.is_file() else outer)


def path_or_url(value: object) -> str:
    """Return a URL unchanged, or a path as an absolute one, because the server runs in another folder."""
    value_text = text(value)
    return value_text if "://" in value_text else str(path(value_text))


def url(value: object) -> str:
    value_text = text(value).rstrip("/")
    if not value_text.startswith(("http://", "https://")):
        raise ValueError("It must begin with http:// or https://.")
    return value_text


def database(value: object) -> DatabaseUrl:
    value_text = text(value)
    if not value_text.startswith(("postgresql://", "postgres://")):
        raise ValueError("It must begin with postgresql://.")
    return DatabaseUrl(value_text)


def channel(value: object) -> Channel:
    value_text = text(value)
    if value_text not in (Channel.HTTPS, Channel.STORE):
        raise ValueError("It must be https or store.")
    return Channel(value_text)


def project(value: object) -> str:
    from crucible.core.people.identity import validate_project_name

    try:
        return validate_project_name(text(value))
    except BadInput as error:
        raise ValueError(f"{error.what} {error.why}") from error


def flag(value: object) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.strip().lower() not in known:
        raise ValueError("It must be true or false.")
    return known[value.strip().lower()]


def names(value: object) -> tuple[str, ...]:
    """Read a list such as `local, rehearsal`; `none` is the empty list."""
    parts = value if isinstance(value, list) else text(value).split(",")
    items = tuple(dict.fromkeys(text(part) for part in parts))
    return () if items == ("none",) else items


def domains(value: object) -> tuple[str, ...]:
    """Read domains, in lower case; each must contain a dot."""
    items = tuple(name.lower().removeprefix("@") for name in names(value))
    if not items or not all(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", name) for name in items):
        raise ValueError("It must be domains such as example.org.")
    return items


def networks(value: object) -> tuple[str, ...]:
    import ipaddress

    items = names(value)
    for name in items:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} is not an address or network, such as 10.0.0.7 or 10.0.0.0/24.") from None
    return items


def size(value: object) -> int:
    from crucible.core.compute.resources import parse_memory

    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("It must be a size such as 500M.")
    try:
        number = parse_memory(str(value))
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error
    if number <= 0:
        raise ValueError("It must be above zero.")
    return number


def size_or_zero(value: object) -> int:
    """Read a size, or 0."""
    return 0 if value in (0, "0") else size(value)


def seconds(value: object) -> float:
    """Read a timeout, up to an hour."""
    number = float(_number(value, "seconds"))
    if not 0 < number <= 3600:
        raise ValueError("It must be between 0 and 3600 seconds.")
    return number


def machine_life(value: object) -> float:
    """Read the lifetime of a machine or lease: seconds, 10 seconds to 30 days."""
    number = float(_number(value, "seconds"))
    if not 10 <= number <= MAX_LIFE_SECONDS:
        raise ValueError("It must be between 10 seconds and 30 days.")
    return number


def days(value: object) -> float:
    """Read `30d` or a number of days; return seconds."""
    number = float(str(_number(value, "days such as 30d")).strip().lower().removesuffix("d"))
    if not 0 < number <= 36500:
        raise ValueError("It must be between 0 and 36500 days.")
    return number * 86400


def count(value: object) -> int:
    """Read a whole number from 1 on."""
    text = str(_number(value, "jobs"))
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= 10**9):
        raise ValueError("It must be a whole number between 1 and 1000000000.")
    return int(text)


def dollars(value: object) -> float:
    number = float(_number(value, "dollars"))
    if not 0 <= number <= 1e9:
        raise ValueError("It must be between 0 and 1000000000 dollars.")
    return number


def _number(value: object, what: str) -> int | float | str:
    """Return the raw value if it can be a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"It must be a number of {what}.")
    return value
