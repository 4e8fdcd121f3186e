"""Servers that the user has logged in to: where, as whom, and the token. A file for his eyes only."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from crucible.core.errors import BadInput, RefusedByPolicy
from crucible.core.secret import Secret

FILE = "logins.json"


@dataclass(frozen=True)
class Login:
    user: str
    token: str
    expires_at: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ***)"


@dataclass(frozen=True)
class Logins:
    """`current` is the server that commands talk to when none is named."""

    servers: dict[str, Login]
    current: str | None = None

    def token(self, url: str) -> Secret | None:
        """A token goes to the server that gave it, and to no other."""
        known = self.servers.get(url)
        return None if known is None else Secret(known.token)

    def with_login(self, url: str, login: Login) -> Logins:
        return Logins({**self.servers, url: login}, url)

    def without(self, url: str) -> Logins:
        rest = {name: login for name, login in self.servers.items() if name != url}
        return replace(self, servers=rest, current=None if self.current == url else self.current)


def load(path: Path) -> Logins:
    """Nothing for a file that is not there; raises BadInput for one that cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        servers = {str(url): Login(**login) for url, login in found["servers"].items()}
        return Logins(servers, found.get("current"))
    except FileNotFoundError:
        return Logins({})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path} cannot be read as logins.", why=str(error), fix="Remove it and log in again."
        ) from error


def save(path: Path, logins: Logins) -> None:
    """Replaced as a whole, and closed to others from the first byte on."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(logins), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def check_encrypted(url: str, *, insecure: bool = False) -> None:
    """Raise RefusedByPolicy where a password or a token would be sent for everyone on the way to read."""
    parts = urlsplit(url)
    if parts.scheme == "https" or insecure or _is_here(parts.hostname or ""):
        return
    raise RefusedByPolicy(
        f"{url} is not encrypted.",
        why="Whoever is on the way could read your token, and run programs as you.",
        fix="Use the server's https:// address; --insecure if you know that the way is safe.",
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        return False
