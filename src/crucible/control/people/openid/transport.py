"""HTTP to the provider: responses must be JSON, within a time and a size, and are never redirected."""

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
"""Timeout of a whole request, until the last byte of the response."""
MAX_RESPONSE_BYTES = 512 * 1024
RETRY_SECONDS = 5.0
"""Time for which a failed fetch is not repeated."""
T = TypeVar("T")


class ProviderTrouble(Unreachable):
    """The provider is down, slow, or sends invalid responses. The user who signs in cannot repair it."""

    code = "provider_trouble"


class BoundedTransport(httpx2.BaseTransport):
    """Raises ProviderTrouble. Runs each request in its own event loop, so that the timeout covers headers too."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = str(request.url)
        try:
            status, body = asyncio.run(self._send(request, url))
            json.loads(body)
        except TimeoutError as error:
            raise trouble(url, f"It did not respond within {self._seconds:g} s.") from error
        except httpx2.TransportError as error:
            raise trouble(url, f"{type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise trouble(url, "Its response is not JSON.") from error
        return httpx2.Response(status, content=body)

    async def _send(self, request: httpx2.Request, url: str) -> tuple[int, bytes]:
        # No compression: a few bytes could unpack to any size.
        request.headers["Accept-Encoding"] = "identity"
        # Replaces the shorter default timeouts of the client that uses this transport.
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
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_RESPONSE_BYTES:
            raise trouble(url, f"Its response is larger than {MAX_RESPONSE_BYTES} bytes.")
    return bytes(body)


def get(transport: httpx2.BaseTransport, url: str, bearer: str | None = None) -> Mapping[str, Any]:
    """Return the JSON object at a URL. Raises ProviderTrouble."""
    headers = {"Accept": "application/json"}
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    try:
        with httpx2.Client(transport=transport) as http:
            response = http.get(url, headers=headers)
    except (httpx2.TransportError, httpx2.InvalidURL, ValueError) as error:
        raise trouble(url, f"{type(error).__name__}: {error}") from error
    body = response.json()
    if response.status_code != 200 or not isinstance(body, Mapping):
        raise trouble(url, f"Its response has status {response.status_code}, or is not a JSON object.")
    return body


class Cached(Generic[T]):
    """A cached document of the provider, safe to use from several threads. `now`: a monotonic clock in seconds."""

    def __init__(self, fetch: Callable[[], T], now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = threading.Lock()
        self._cached: tuple[T, float] | None = None
        self._failed: tuple[ProviderTrouble, float] | None = None

    def get(self, max_age: float) -> T:
        """Return the document, fetched again after `max_age` seconds. A failure is raised again for RETRY_SECONDS."""
        with self._lock:
            now = self._now()
            if self._cached is not None and now - self._cached[1] < max_age:
                return self._cached[0]
            if self._failed is not None and now - self._failed[1] < RETRY_SECONDS:
                raise self._failed[0]
            try:
                self._cached, self._failed = (self._fetch(), self._now()), None
            except ProviderTrouble as error:
                self._failed = (error, self._now())
                raise
            return self._cached[0]


def trouble(url: str, why: str) -> ProviderTrouble:
    return ProviderTrouble(
        f"The sign-in provider failed at {url[:200]}.",
        why=why,
        fix="Try again in a moment; `crucible login --name USER` and tokens work without it. If this continues, ask "
        "an administrator to check the settings oidc_*.",
    )
