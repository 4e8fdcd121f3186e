"""Asking the provider over HTTP: every answer within a time and a size, and no detours."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx2

from crucible.core.errors import Unreachable
from crucible.core.openid import is_here

SECONDS = 8.0
"""For one question, from the first byte to the last."""
MAX_ANSWER = 512 * 1024


class ProviderTrouble(Unreachable):
    """The provider is down, slow, or answers what no provider answers. Not the fault of whoever signs in."""

    code = "provider_trouble"


@dataclass(frozen=True)
class Reply:
    status: int
    body: object
    """The JSON of the answer."""


class Web(Protocol):
    def ask(self, url: str, form: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """A GET, or a POST of `form`. Raises ProviderTrouble; blocks for some seconds at most."""
        ...


class HttpWeb:
    """`seconds`: how long one question may take. It has a loop of its own, whose deadline holds for headers too."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def ask(self, url: str, form: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        try:
            return asyncio.run(self._asked(url, form, headers or {}))
        except TimeoutError as error:
            raise trouble(url, f"It did not answer within {self._seconds:g} s.") from error
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise trouble(url, f"{type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise trouble(url, "What it answers is no JSON.") from error

    async def _asked(self, url: str, form: str | None, headers: Mapping[str, str]) -> Reply:
        told = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        if form is not None:
            told["Content-Type"] = "application/x-www-form-urlencoded"
        method, content = ("GET", None) if form is None else ("POST", form.encode())
        async with (
            asyncio.timeout(self._seconds),
            self._client(url) as http,
            http.stream(method, url, headers=told, content=content) as response,
        ):
            return Reply(response.status_code, json.loads(await _whole(response, url)))

    def _client(self, url: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            timeout=self._seconds,
            follow_redirects=False,
            trust_env=not is_here(url),
            verify=False if url.startswith("http://") else ssl.create_default_context(),
        )


async def _whole(response: httpx2.Response, url: str) -> bytes:
    found = bytearray()
    async for piece in response.aiter_raw():
        found += piece
        if len(found) > MAX_ANSWER:
            raise trouble(url, f"It answers more than {MAX_ANSWER} bytes.")
    return bytes(found)


def trouble(url: str, why: str) -> ProviderTrouble:
    return ProviderTrouble(
        f"The sign-in provider does not answer as it should at {url[:200]}.",
        why=why,
        fix="Try again in a moment; `crucible login --name USER` and tokens work without it. If it stays, an "
        "administrator looks at the settings oidc_*.",
    )
