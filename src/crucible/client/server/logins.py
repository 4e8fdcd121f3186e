"""The servers that the user has logged in to, with user and token, in a file that only the user may read."""

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
    """`current` is the default server of commands."""

    servers: dict[str, Login]
    current: str | None = None

    def token(self, url: str) -> Secret | None:
        """Return the token of this server; it must not be sent to another."""
        known = self.servers.get(url)
        return None if known is None else Secret(known.token)

    def with_login(self, url: str, login: Login) -> Logins:
        return Logins({**self.servers, url: login}, url)

    def without(self, url: str) -> Logins:
        rest = {name: login for name, login in self.servers.items() if name != url}
        return replace(self, servers=rest, current=None if self.current == url else self.current)


def load(path: Path) -> Logins:
    """Return the logins of the file, none if it does not exist. Raises BadInput if it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        servers = {str(url): Login(**login) for url, login in content["servers"].items()}
        return Logins(servers, content.get("current"))
    except FileNotFoundError:
        return Logins({})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path} cannot be read as logins.", why=str(error), fix="Remove it and log in again."
        ) from error


def save(path: Path, logins: Logins) -> None:
    """Replace the file atomically; it is never readable by other users."""
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
    """Raise RefusedByPolicy if a password or token would be sent unencrypted over a network."""
    parts = urlsplit(url)
    if parts.scheme == "https" or insecure or _is_loopback_host(parts.hostname or ""):
        return
    raise RefusedByPolicy(
        f"{url} is not encrypted.",
        why="Others on the network could read your token and run programs as you.",
        fix="Use the server's https:// address; or --insecure on a network that you trust.",
    )


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        return False
