"""Where a server is reached: its URL, and the proxy before it."""

from __future__ import annotations

import base64
from urllib.parse import SplitResult, unquote, urlsplit

from crucible.core.errors import BadInput
from crucible.wire.http.client import BaseUrl, Proxy

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def read_address(url: str) -> BaseUrl:
    """Return the parts of a server's URL; BadInput if it is none."""
    try:
        return BaseUrl.parse(url)
    except ValueError as error:
        fix = "Write it like https://crucible.example.org."
        raise BadInput(f"{url!r} is no address of a server.", why=str(error), fix=fix) from error


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def proxy_for(address: BaseUrl) -> Proxy | None:
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
    url = url if "://" in url else f"http://{url}"
    try:
        base = BaseUrl.parse(url)
    except ValueError:
        base = None
    if base is None or base.scheme != "http":
        raise BadInput(
            "The proxy in the environment cannot be used.",
            why="It has to be reached by http://; connections to servers are encrypted through it all the same.",
            fix="Change HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the server's name to NO_PROXY.",
        )
    return Proxy(base.host, base.port, _credentials(urlsplit(url)))


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
