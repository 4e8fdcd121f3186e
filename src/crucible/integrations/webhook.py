"""Send a webhook: one POST to a checked address, without redirects, bounded in time and size."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from crucible.core.errors import CrucibleError
from crucible.core.hooks import LONGEST_TEXT, Reply
from crucible.integrations.addresses import Guard, Target

if TYPE_CHECKING:
    import httpx2

SECONDS = 10.0
"""Timeout of everything together: looking up the name, connecting, sending, and reading the response."""
MOST_BYTES = 8 * 1024
"""Maximum number of bytes of a response that are read."""
MOST_ADDRESSES = 3
"""Maximum number of addresses of a host that are tried in turn."""


class Webhooks:
    """Posts to URLs of users, always through the guard."""

    def __init__(
        self, guard: Guard, *, agent: str, seconds: float = SECONDS, tls: ssl.SSLContext | None = None
    ) -> None:
        """`agent` is the User-Agent; `tls` decides which certificates are trusted (default: those of the system)."""
        self._guard = guard
        self._agent = agent
        self._seconds = seconds
        self._tls = tls

    def now(self) -> float:
        """Return the time by the computer's clock, which may be set while this process runs."""
        return time.time()

    async def check(self, url: str) -> None:
        """Raise the guard's error if the URL cannot be called."""
        await self._guard.target(url)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Return the receiver's reply, or why there is none. Errors of the network or the receiver are not raised."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._post(await self._guard.target(url), body, headers)
        except CrucibleError as error:
            return Reply(None, str(error)[:LONGEST_TEXT])
        except TimeoutError:
            return Reply(None, f"It did not answer within {self._seconds:g} s.")

    async def _post(self, target: Target, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Try the addresses in turn; the connect timeout leaves time for the next ones and for the response."""
        tls = await asyncio.to_thread(_system_tls) if self._tls is None else self._tls
        import httpx2

        why, addresses = "", target.addresses[:MOST_ADDRESSES]
        waits = httpx2.Timeout(self._seconds, connect=self._seconds / (len(addresses) + 1))
        async with httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=waits) as client:
            for address in addresses:
                try:
                    return await self._ask(client, target, address, body, headers)
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    why = f"Connection failed: {str(error) or 'no response'}"
                except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                    why = f"{type(error).__name__}: {error}"
                    break
        return Reply(None, _plain(why))

    async def _ask(
        self, client: httpx2.AsyncClient, target: Target, address: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        """Connect to `address`, but with the host's name in the request and for the certificate."""
        netloc = f"[{address}]" if ":" in address else address
        own = {"host": target.named, "user-agent": self._agent, "accept-encoding": "identity", "connection": "close"}
        async with client.stream(
            "POST",
            f"{target.scheme}://{netloc}:{target.port}{target.path}",
            content=body,
            headers={"content-type": "application/json", **headers, **own},
            extensions={"sni_hostname": target.host},
        ) as response:
            start = await _read_start(response)
            return Reply(response.status_code, _text(response.status_code, start), _retry_after(response))


async def _read_start(response: httpx2.Response) -> bytes:
    found = b""
    async for piece in response.aiter_raw():
        found += piece
        if len(found) >= MOST_BYTES:
            break
    return found[:MOST_BYTES]


def _text(status: int, start: bytes) -> str:
    if 300 <= status < 400:
        return "It responded with a redirect, which is not followed: use the final URL."
    return _plain(start.decode("utf-8", "replace"))


def _plain(text: str) -> str:
    """Return the text on one line, cut to the length that is kept."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:LONGEST_TEXT]


def _retry_after(response: httpx2.Response) -> float | None:
    seconds = response.headers.get("retry-after", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 7 else None


@lru_cache(maxsize=1)
def _system_tls() -> ssl.SSLContext:
    """Return the system's TLS settings. Cached, and called in a thread: loading httpx2 and the certificates is slow."""
    import httpx2  # noqa: F401

    return ssl.create_default_context()
