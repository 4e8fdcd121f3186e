"""The address of a server, and the proxy on the way to it."""

from __future__ import annotations

import base64
from urllib.parse import SplitResult, unquote, urlsplit

from crucible.core.errors import BadInput
from crucible.wire.http.client import BaseUrl, Proxy

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def read_address(url: str) -> BaseUrl:
    """Return the parts of a server's URL. Raises BadInput if it is not one."""
    try:
        return BaseUrl.parse(url)
    except ValueError as error:
        fix = "Write it like https://crucible.example.org."
        raise BadInput(f"{url!r} is not the address of a server.", why=str(error), fix=fix) from error


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def proxy_for(address: BaseUrl) -> Proxy | None:
    """Return the proxy for an address, from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY or the system's settings.

    None for a loopback address, which the proxy would resolve to itself.
    """
    if address.host in LOOPBACK:
        return None
    from urllib.request import getproxies, proxy_bypass  # slow to import, and only needed for remote servers

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
            why="Only http:// proxies are supported; connections to https:// servers are encrypted through them too.",
            fix="Change HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the server's name to NO_PROXY.",
        )
    return Proxy(base.host, base.port, _credentials(urlsplit(url)))


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
