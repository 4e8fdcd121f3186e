"""A call to somebody's address: one POST to an address that was checked, no redirects, bounded in time and size."""

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
"""For all of it: looking up the name, connecting, sending, and reading the answer."""
MOST_BYTES = 8 * 1024
"""Of an answer that are read."""
MOST_ADDRESSES = 3
"""Of a host that are tried one after another."""


class Webhooks:
    """Posts to addresses that users named, through the guard and by no other way."""

    def __init__(
        self, guard: Guard, *, agent: str, seconds: float = SECONDS, tls: ssl.SSLContext | None = None
    ) -> None:
        """`agent` is what we call ourselves there; `tls`: whom to believe (unless given: whom the system does)."""
        self._guard = guard
        self._agent = agent
        self._seconds = seconds
        self._tls = tls

    def now(self) -> float:
        """The computer's clock, also when it was set since this process started."""
        return time.time()

    async def check(self, url: str) -> None:
        """Raises what the guard raises for an address that cannot be called."""
        await self._guard.target(url)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """What the receiver said; or nothing, and why. Raises nothing that the network or the receiver cause."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._post(await self._guard.target(url), body, headers)
        except CrucibleError as error:
            return Reply(None, str(error)[:LONGEST_TEXT])
        except TimeoutError:
            return Reply(None, f"It did not answer within {self._seconds:g} s.")

    async def _post(self, target: Target, body: bytes, headers: Mapping[str, str]) -> Reply:
        """An address that is silent leaves time for the next ones, and for the answer."""
        tls = await asyncio.to_thread(_believed) if self._tls is None else self._tls
        import httpx2

        said, addresses = "", target.addresses[:MOST_ADDRESSES]
        waits = httpx2.Timeout(self._seconds, connect=self._seconds / (len(addresses) + 1))
        async with httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=waits) as client:
            for address in addresses:
                try:
                    return await self._ask(client, target, address, body, headers)
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    said = f"It cannot be connected to: {str(error) or 'it does not answer'}"
                except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                    said = f"{type(error).__name__}: {error}"
                    break
        return Reply(None, _plain(said))

    async def _ask(
        self, client: httpx2.AsyncClient, target: Target, address: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        """The connection goes to `address`; the request and the certificate are those of the host's name."""
        there = f"[{address}]" if ":" in address else address
        own = {"host": target.named, "user-agent": self._agent, "accept-encoding": "identity", "connection": "close"}
        async with client.stream(
            "POST",
            f"{target.scheme}://{there}:{target.port}{target.path}",
            content=body,
            headers={"content-type": "application/json", **headers, **own},
            extensions={"sni_hostname": target.host},
        ) as response:
            said = await _beginning(response)
            return Reply(response.status_code, _text(response.status_code, said), _seconds_of(response))


async def _beginning(response: httpx2.Response) -> bytes:
    found = b""
    async for piece in response.aiter_raw():
        found += piece
        if len(found) >= MOST_BYTES:
            break
    return found[:MOST_BYTES]


def _text(status: int, said: bytes) -> str:
    if 300 <= status < 400:
        return "It answered with a redirect, and none is followed: give the address itself."
    return _plain(said.decode("utf-8", "replace"))


def _plain(text: str) -> str:
    """On one line, and no longer than is kept."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:LONGEST_TEXT]


def _seconds_of(response: httpx2.Response) -> float | None:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdigit() and len(given) < 7 else None


@lru_cache(maxsize=1)
def _believed() -> ssl.SSLContext:
    """Loading the client and the system's certificates takes a while, the first time."""
    import httpx2  # noqa: F401

    return ssl.create_default_context()
