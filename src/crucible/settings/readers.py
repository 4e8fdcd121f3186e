"""What was written, in a file or a variable, as a value. Each reader raises ValueError with what it wants instead."""

from __future__ import annotations

import re
from pathlib import Path

from crucible.core.channels import Channel
from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.settings.database import DatabaseUrl

LONGEST_LIFE = 30 * 86400


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("It has to be text.")
    return value.strip()


def secret(value: object) -> Secret:
    return Secret(text(value))


def path(value: object) -> Path:
    return Path(text(value)).expanduser().absolute()


def interpreter(value: object) -> str:
    """An interpreter, or the folder of a virtual environment that has one."""
    outer = path(value)
    inner = outer / "bin" / "python"
    return str(inner if inner.is_file() else outer)


def place(value: object) -> str:
    """A URL as it is; a path made absolute, because the server runs in another folder."""
    said = text(value)
    return said if "://" in said else str(path(said))


def url(value: object) -> str:
    said = text(value).rstrip("/")
    if not said.startswith(("http://", "https://")):
        raise ValueError("It has to begin with http:// or https://.")
    return said


def database(value: object) -> DatabaseUrl:
    said = text(value)
    if not said.startswith(("postgresql://", "postgres://")):
        raise ValueError("It has to begin with postgresql://.")
    return DatabaseUrl(said)


def channel(value: object) -> Channel:
    said = text(value)
    if said not in (Channel.HTTPS, Channel.STORE):
        raise ValueError("It has to be https or store.")
    return Channel(said)


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
        raise ValueError("It has to be true or false.")
    return known[value.strip().lower()]


def names(value: object) -> tuple[str, ...]:
    """`local, rehearsal` or a list; `none` is no name at all."""
    words = value if isinstance(value, list) else text(value).split(",")
    found = tuple(dict.fromkeys(text(word) for word in words))
    return () if found == ("none",) else found


def domains(value: object) -> tuple[str, ...]:
    """In small letters, each with a dot."""
    found = tuple(name.lower().removeprefix("@") for name in names(value))
    if not found or not all(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", name) for name in found):
        raise ValueError("It has to be domains such as example.org.")
    return found


def networks(value: object) -> tuple[str, ...]:
    import ipaddress

    found = names(value)
    for name in found:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} is no address or network, such as 10.0.0.7 or 10.0.0.0/24.") from None
    return found


def size(value: object) -> int:
    from crucible.core.compute.resources import parse_memory

    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("It has to be a size such as 500M.")
    try:
        found = parse_memory(str(value))
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error
    if found <= 0:
        raise ValueError("It has to be above zero.")
    return found


def size_or_none(value: object) -> int:
    """A size, or 0."""
    return 0 if value in (0, "0") else size(value)


def seconds(value: object) -> float:
    """Up to an hour: how long somebody waits."""
    found = float(_number(value, "seconds"))
    if not 0 < found <= 3600:
        raise ValueError("It has to be between 0 and 3600 seconds.")
    return found


def life(value: object) -> float:
    """Seconds, up to 30 days."""
    found = float(_number(value, "seconds"))
    if not 10 <= found <= LONGEST_LIFE:
        raise ValueError("It has to be between 10 seconds and 30 days.")
    return found


def days(value: object) -> float:
    """`30d`, or a number of days, as seconds."""
    found = float(str(_number(value, "days such as 30d")).strip().lower().removesuffix("d"))
    if not 0 < found <= 36500:
        raise ValueError("It has to be between 0 and 36500 days.")
    return found * 86400


def dollars(value: object) -> float:
    found = float(_number(value, "dollars"))
    if not 0 <= found <= 1e9:
        raise ValueError("It has to be between 0 and 1000000000 dollars.")
    return found


def _number(value: object, what: str) -> int | float | str:
    """What may be a number, or be written as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"It has to be a number of {what}.")
    return value
