"""Where a server is reached: the parts of its URL, and the proxy before it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from crucible.core.errors import BadInput

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """`path` is what stands before every route, without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True)
class Proxy:
    """`headers` are those that it wants to see."""

    host: str
    port: int
    headers: Mapping[str, str]


def read_address(url: str) -> Address:
    """The parts of a server's URL; BadInput when it is none."""
    try:
        parts = _split(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _no_address(url, str(error)) from error
    if parts.scheme not in _PORTS or not host:
        raise _no_address(url)
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], quote(parts.path.rstrip("/"), safe="/%"))


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def proxy_before(address: Address) -> Proxy | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, or the system's settings, name for an address.

    None for this computer: a proxy would look for the loopback on its own.
    """
    if address.host in LOOPBACK:
        return None
    from urllib.request import getproxies, proxy_bypass  # slow to load, and needed beyond this computer only

    known = getproxies()
    url = known.get(address.scheme) or known.get("all")
    return None if not url or proxy_bypass(address.host) else _read_proxy(url)


def _read_proxy(url: str) -> Proxy:
    try:
        parts = _split(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme != "http" or not host:
        raise BadInput(
            "The proxy in the environment cannot be used.",
            why="It has to be reached by http://; connections to servers are encrypted through it all the same.",
            fix="Change HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the server's name to NO_PROXY.",
        )
    return Proxy(host, port or _PORTS["http"], _credentials(parts))


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _split(url: str) -> SplitResult:
    """The parts of a URL; ValueError when it is none."""
    if not url.isprintable() or " " in url:
        raise ValueError("It holds signs that no address has.")
    return urlsplit(url)


def _no_address(url: str, why: str = "") -> BadInput:
    return BadInput(f"{url!r} is no address of a server.", why=why, fix="Write it like https://crucible.example.org.")
