"""HTTP to the provider: answers are JSON, come within a time and a size, and lead nowhere else."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import httpx2

from crucible.core.errors import Unreachable
from crucible.core.people.openid import is_loopback_url

SECONDS = 8.0
"""For one request, from the first byte to the last."""
MAX_ANSWER = 512 * 1024
RETRY_SECONDS = 5.0
"""How long a provider that is down is left alone."""
T = TypeVar("T")


class ProviderTrouble(Unreachable):
    """The provider is down, slow, or answers what no provider answers. Not the fault of the user who signs in."""

    code = "provider_trouble"


class BoundedTransport(httpx2.BaseTransport):
    """Raises ProviderTrouble. Each request has an event loop of its own: its deadline holds for headers too."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = str(request.url)
        try:
            status, body = asyncio.run(self._send(request, url))
            json.loads(body)
        except TimeoutError as error:
            raise trouble(url, f"It did not answer within {self._seconds:g} s.") from error
        except httpx2.TransportError as error:
            raise trouble(url, f"{type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise trouble(url, "What it answers is no JSON.") from error
        return httpx2.Response(status, content=body)

    async def _send(self, request: httpx2.Request, url: str) -> tuple[int, bytes]:
        # Nothing is unpacked: a few bytes could become any number.
        request.headers["Accept-Encoding"] = "identity"
        # The client above has timeouts of its own, which are shorter.
        request.extensions["timeout"] = httpx2.Timeout(self._seconds).as_dict()
        async with asyncio.timeout(self._seconds), self._client(url) as http:
            response = await http.send(request, stream=True)
            try:
                return response.status_code, await _read(response, url)
            finally:
                await response.aclose()

    def _client(self, url: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            follow_redirects=False,
            trust_env=not is_loopback_url(url),
            verify=False if url.startswith("http://") else ssl.create_default_context(),
        )


async def _read(response: httpx2.Response, url: str) -> bytes:
    found = bytearray()
    async for piece in response.aiter_raw():
        found += piece
        if len(found) > MAX_ANSWER:
            raise trouble(url, f"It answers more than {MAX_ANSWER} bytes.")
    return bytes(found)


def get(transport: httpx2.BaseTransport, url: str, bearer: str | None = None) -> Mapping[str, Any]:
    """The JSON object at an address; raises ProviderTrouble."""
    headers = {"Accept": "application/json"}
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    try:
        with httpx2.Client(transport=transport) as http:
            reply = http.get(url, headers=headers)
    except (httpx2.TransportError, httpx2.InvalidURL, ValueError) as error:
        raise trouble(url, f"{type(error).__name__}: {error}") from error
    body = reply.json()
    if reply.status_code != 200 or not isinstance(body, Mapping):
        raise trouble(url, f"It answers {reply.status_code}, or no JSON object.")
    return body


class Cached(Generic[T]):
    """A document of the provider. Used from several threads; `now` are seconds that only rise."""

    def __init__(self, fetch: Callable[[], T], now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = threading.Lock()
        self._found: tuple[T, float] | None = None
        self._failed: tuple[ProviderTrouble, float] | None = None

    def get(self, max_age: float) -> T:
        """The document, fetched if it is as old as that. While the provider is down, callers hear so at once."""
        with self._lock:
            now = self._now()
            if self._found is not None and now - self._found[1] < max_age:
                return self._found[0]
            if self._failed is not None and now - self._failed[1] < RETRY_SECONDS:
                raise self._failed[0]
            try:
                self._found, self._failed = (self._fetch(), self._now()), None
            except ProviderTrouble as error:
                self._failed = (error, self._now())
                raise
            return self._found[0]


def trouble(url: str, why: str) -> ProviderTrouble:
    return ProviderTrouble(
        f"The sign-in provider does not answer as it should at {url[:200]}.",
        why=why,
        fix="Try again in a moment; `crucible login --name USER` and tokens work without it. If it stays, an "
        "administrator looks at the settings oidc_*.",
    )
