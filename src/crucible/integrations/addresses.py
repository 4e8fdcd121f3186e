"""Check the URLs that users enter and this server calls: none of them may lead into our own network (SSRF).

A name is looked up once, all of its addresses must be public, and the connection goes to a checked address: a name
that resolves differently a moment later changes nothing. Administrators may allow hosts and networks of their own.
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
"""Returns the addresses of a host and port; raises Unreachable."""

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ODD = re.compile("[\x00-\x20\x7f\\\\\ud800-\udfff]")

_OPEN_6 = ipaddress.ip_network("2000::/3")
"""The allocated public part of IPv6; everything else, such as ::1 and addresses that embed others, is private."""
_NOT_OPEN: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "168.63.129.16/32",  # Azure's platform address, reachable in every virtual machine there
            "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
        ),
    )
)  # fmt: skip
"""The registries of special addresses (RFC 6890), copied: the lists in Python's ipaddress differ by version."""


@dataclass(frozen=True)
class Target:
    """The target of a call: the connection goes to one of `addresses`, the request names `host`."""

    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """Host and port as in the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == SCHEMES[self.scheme] else f"{name}:{self.port}"


@dataclass(frozen=True)
class Exceptions:
    """What an administrator allowed: hosts, written as in URLs, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, names: Iterable[str]) -> Exceptions:
        """Parse hosts and networks. Raises BadInput for anything else."""
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
    """Checks URLs that users enter before they are called."""

    def __init__(self, look_up: LookUp, exceptions: Exceptions | None = None) -> None:
        self._look_up = look_up
        self._exceptions = exceptions or Exceptions()

    async def target(self, url: str) -> Target:
        """Return the checked target of a URL.

        Raises BadInput, RefusedByPolicy for a private address, and Unreachable for a name that cannot be resolved.
        """
        target = parse(url)
        found = tuple(await self._look_up(target.host, target.port))
        if not found:
            raise Unreachable(f"The host {target.host!r} has no address.", fix="Check the name.")
        for address in found:
            if not is_public(address) and not self._exceptions.has(target.host, address):
                raise _refusal(target.host, address)
        return Target(target.scheme, target.host, target.port, target.path, found)


def parse(url: str) -> Target:
    """Parse a URL, without looking up addresses. Raises BadInput if it is not a valid web address."""
    if len(url) > MAX_URL or _ODD.search(url):
        raise _no_address(
            url, f"It has more than {MAX_URL} characters, or contains blanks, control characters or backslashes."
        )
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(url, str(error)) from error
    if scheme not in SCHEMES or not host:
        raise _no_address(url, "It must start with https:// or http:// and name a host.")
    if "@" in parts.netloc:
        raise _no_address(url, "It must not contain a user name or a password.")
    if port == 0:
        raise _no_address(url, "There is no port 0.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, _checked_host(host, url), port or SCHEMES[scheme], path)


def is_public(address: str) -> bool:
    """Return whether an address is public. Addresses that embed another one are not."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if found.version == 6 and found not in _OPEN_6:
        return False
    return not any(found in network for network in _NOT_OPEN)


def look_up(host: str, port: int) -> list[str]:
    """Look up a host with this computer's resolver. Blocks; raises Unreachable."""
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"The host {host!r} is not known.", why=str(error), fix="Check the name.") from error
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in known))


def _checked_host(host: str, url: str) -> str:
    """Return the host in its canonical form: a name in ASCII, or an address."""
    if ":" in host:
        return str(_address(host, url))
    name = _ascii(host, url).lower().removesuffix(".")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return str(_address(name, url))
    if not _is_name(name):
        raise _no_address(url, f"{host[:80]!r} is not a valid host name.")
    return name


def _is_name(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and not _NUMBER.fullmatch(text.rpartition(".")[2])


def _ascii(host: str, url: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError as error:
        raise _no_address(url, f"{host[:80]!r} is not a valid host name.") from error


def _address(text: str, url: str) -> Address:
    """Parse dotted IPv4 or IPv6; the shorter, octal and hexadecimal forms that some programs accept are refused."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise _no_address(url, f"{text[:80]!r} is neither a name nor an address in its usual form.") from error
    if found.version == 6 and "%" in text:
        raise _no_address(url, "An address with a zone belongs to this computer.")
    return found


def _refusal(host: str, address: str) -> RefusedByPolicy:
    target = host if host == address else f"{host} ({address})"
    return RefusedByPolicy(
        f"{target} is not on the open internet.",
        why="A call from this server could reach services that are only meant for its own network.",
        fix=f"Use a public address; an administrator of the server can allow this one with the setting {SETTING}, "
        f'for example {SETTING} = ["{host}"], and restart it: crucible down, then crucible up.',
        setting=SETTING,
    )


def _no_address(url: str, why: str) -> BadInput:
    """Return the error for a URL. Text before an @ may be a password, and is left out."""
    safe = url.rpartition("@")[2][:80]
    fix = "Give a complete URL, such as https://hooks.example.org/crucible."
    return BadInput(f"{safe!r} is not a URL that can be called.", why=why, fix=fix, field="url")


def _no_exception(name: str) -> BadInput:
    return BadInput(
        f"The setting {SETTING} does not accept {name[:80]!r}.",
        why="It is a list of host names, addresses and networks.",
        fix=f'For example {SETTING} = ["hooks.internal", "10.1.0.0/16"].',
    )
