"""The client's address and scheme behind trusted proxies.

A proxy appends the address of its client to X-Forwarded-For. Earlier entries came with the request and may be forged,
so only the last one counts, and only if the connection itself comes from a trusted proxy.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

THIS_COMPUTER: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))

MAX_ENTRY = 60
"""Maximum characters of an entry; an address with its port is shorter."""
_SCHEMES = {("http", "https"): "https", ("http", "http"): "http", ("websocket", "https"): "wss"}
_PLAIN = ("http", "ws")


class ProxyHeaders:
    """Middleware that replaces client address and scheme by those that a trusted proxy forwarded.

    `trusted`: networks that proxies connect from. They use plain HTTP: a server with TLS of its own has no proxy.
    """

    def __init__(self, app: ASGIApp, *, trusted: Sequence[Network] = THIS_COMPUTER) -> None:
        self.app = app
        self._trusted = tuple(trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["scheme"] in _PLAIN and self._is_proxy(scope):
            scope = {**scope, **_forwarded(scope)}
        await self.app(scope, receive, send)

    def _is_proxy(self, scope: Scope) -> bool:
        client = scope.get("client")
        address = _address(str(client[0])) if client else None
        return address is not None and any(address in network for network in self._trusted)


def trusted_networks(networks: Sequence[str]) -> tuple[Network, ...]:
    """Return the loopback networks and these addresses and networks."""
    return (*THIS_COMPUTER, *map(ipaddress.ip_network, networks))


def server_url(request: HTTPConnection, public_url: str) -> str:
    """Return the URL at which the caller reaches this server: the public URL, or that of the request."""
    public = public_url.rstrip("/")
    if public and urlsplit(public).hostname == request.url.hostname:
        return public
    return str(request.base_url).rstrip("/")


def _forwarded(scope: Scope) -> dict[str, object]:
    headers = Headers(scope=scope)
    changes: dict[str, object] = {}
    client = _address(_last(headers.getlist("x-forwarded-for")))
    if client is not None:
        changes["client"] = (str(client), 0)
    scheme = _SCHEMES.get((scope["type"], _last(headers.getlist("x-forwarded-proto")).lower()))
    if scheme is not None:
        changes["scheme"] = scheme
    return changes


def _last(values: Sequence[str]) -> str:
    """Return the last entry of a list in one or several headers: the one that the nearest proxy wrote."""
    return values[-1].rpartition(",")[2].strip() if values else ""


def _address(text: str) -> Address | None:
    """Parse an address with or without a port, as proxies write it; return None if it is invalid."""
    if len(text) > MAX_ENTRY or "%" in text:
        return None
    bracketed = text.startswith("[") and "]" in text
    host = text[1:].partition("]")[0] if bracketed else text
    if host.count(":") == 1:
        host = host.partition(":")[0]
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return mapped or address
    return None
