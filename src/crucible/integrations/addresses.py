"""Addresses that users name and this server calls: none of them may be a way into our own network.

A name is looked up once, every address it has must be public, and the connection goes to an address that was
checked: a name that says something else the next moment changes nothing. Administrators may name hosts and
networks of their own as exceptions.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from crucible.core.errors import BadInput, RefusedByPolicy, Unreachable

MAX_URL = 2000
SCHEMES = {"https": 443, "http": 80}
SETTING = "webhook_hosts"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host; raises Unreachable."""

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ODD = re.compile("[\x00-\x20\x7f\\\\\ud800-\udfff]")

_OPEN_6 = ipaddress.ip_network("2000::/3")
"""All that is given out of IPv6; everything else, ::1 and addresses that hold others, is somebody's own."""
_NOT_OPEN: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "168.63.129.16/32",  # a provider's own, in every virtual machine there
            "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
        ),
    )
)  # fmt: skip
"""The registries of special addresses (RFC 6890), written down: what Python knows of them differs by version."""


@dataclass(frozen=True)
class Target:
    """Where a call goes: one of `addresses` is connected to, `host` is what is asked for there."""

    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """Host and port as a request names them."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == SCHEMES[self.scheme] else f"{name}:{self.port}"


@dataclass(frozen=True)
class Exceptions:
    """What an administrator allowed: hosts, as addresses name them, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, names: Iterable[str]) -> Exceptions:
        """Raises BadInput for what is neither."""
        hosts, networks = set(), []
        for name in names:
            plain = name.strip().strip("[]").lower().rstrip(".")
            try:
                networks.append(ipaddress.ip_network(plain))
            except ValueError:
                if not _is_name(plain):
                    raise _no_exception(name) from None
                hosts.add(plain)
        return cls(frozenset(hosts), tuple(networks))

    def has(self, host: str, address: str) -> bool:
        return host in self.hosts or any(ipaddress.ip_address(address) in network for network in self.networks)


class Guard:
    """The one way from an address that a user named to one that may be called."""

    def __init__(self, look_up: LookUp, exceptions: Exceptions | None = None) -> None:
        self._look_up = look_up
        self._exceptions = exceptions or Exceptions()

    async def target(self, url: str) -> Target:
        """Raises BadInput, RefusedByPolicy for our own network, Unreachable for a name that nobody knows."""
        target = parse(url)
        found = tuple(await self._look_up(target.host, target.port))
        if not found:
            raise Unreachable(f"The host {target.host!r} has no address.", fix="Check the name.")
        for address in found:
            if not is_public(address) and not self._exceptions.has(target.host, address):
                raise _refusal(target.host, address)
        return Target(target.scheme, target.host, target.port, target.path, found)


def parse(url: str) -> Target:
    """Without addresses yet; raises BadInput for what is no address of a web server."""
    if len(url) > MAX_URL or _ODD.search(url):
        raise _no_address(
            url, f"It has more than {MAX_URL} characters, or holds blanks, controls, backslashes or half letters."
        )
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(url, str(error)) from error
    if scheme not in SCHEMES or not host:
        raise _no_address(url, "It has to begin with https:// or http://, and to name a host.")
    if "@" in parts.netloc:
        raise _no_address(url, "It must not hold a name or a password.")
    if port == 0:
        raise _no_address(url, "There is no port 0.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, _checked_host(host, url), port or SCHEMES[scheme], path)


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet. Those that hold another inside are not."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if found.version == 6 and found not in _OPEN_6:
        return False
    return not any(found in network for network in _NOT_OPEN)


def look_up(host: str, port: int) -> list[str]:
    """By this computer's own means. Blocks; raises Unreachable."""
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"The host {host!r} is not known.", why=str(error), fix="Check the name.") from error
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in known))


def _checked_host(host: str, url: str) -> str:
    """In the one form that everybody reads alike: a name in letters of ASCII, or an address as it is written."""
    if ":" in host:
        return str(_address(host, url))
    name = _ascii(host, url).lower().removesuffix(".")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return str(_address(name, url))
    if not _is_name(name):
        raise _no_address(url, f"{host[:80]!r} is no name of a host.")
    return name


def _is_name(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and not _NUMBER.fullmatch(text.rpartition(".")[2])


def _ascii(host: str, url: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError as error:
        raise _no_address(url, f"{host[:80]!r} is no name of a host.") from error


def _address(text: str, url: str) -> Address:
    """Four numbers, or IPv6; not the shorter, octal and hexadecimal forms that some programs take too."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise _no_address(url, f"{text[:80]!r} is neither a name nor an address in its usual form.") from error
    if found.version == 6 and "%" in text:
        raise _no_address(url, "An address with a zone is one of this computer's own.")
    return found


def _refusal(host: str, address: str) -> RefusedByPolicy:
    shown = host if host == address else f"{host} ({address})"
    return RefusedByPolicy(
        f"{shown} is not on the open internet.",
        why="A call from this server could reach there what only its own network may.",
        fix=f"Use a public address; an administrator of the server can allow this one with the setting {SETTING}, "
        f'for example {SETTING} = ["{host}"], and start it again: crucible down, then crucible up.',
        setting=SETTING,
    )


def _no_address(url: str, why: str) -> BadInput:
    """What stands before an @ may be a password, and is not repeated."""
    shown = url.rpartition("@")[2][:80]
    fix = "Give a whole address, such as https://hooks.example.org/crucible."
    return BadInput(f"{shown!r} is no address that can be called.", why=why, fix=fix, field="url")


def _no_exception(name: str) -> BadInput:
    return BadInput(
        f"The setting {SETTING} cannot hold {name[:80]!r}.",
        why="It lists names of hosts, addresses and networks.",
        fix=f'For example {SETTING} = ["hooks.internal", "10.1.0.0/16"].',
    )
