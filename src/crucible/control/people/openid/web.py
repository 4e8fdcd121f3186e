"""Asking the provider over HTTP: every answer within a time and a size, and no detours."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import httpx2

from crucible.core.errors import Unreachable

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
    """`seconds`: how long one question may take."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def ask(self, url: str, form: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        until = time.monotonic() + self._seconds
        try:
            with self._client(url) as http, self._sent(http, url, form, headers or {}) as response:
                raw = self._whole(response, until, url)
                return Reply(response.status_code, json.loads(raw))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise trouble(url, f"{type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise trouble(url, "What it answers is no JSON.") from error

    def _client(self, url: str) -> httpx2.Client:
        here = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
        return httpx2.Client(
            timeout=self._seconds / 2,
            follow_redirects=False,
            trust_env=not here,
            verify=False if url.startswith("http://") else ssl.create_default_context(),
        )

    def _sent(
        self, http: httpx2.Client, url: str, form: str | None, headers: Mapping[str, str]
    ) -> AbstractContextManager[httpx2.Response]:
        told = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        if form is None:
            return http.stream("GET", url, headers=told)
        told["Content-Type"] = "application/x-www-form-urlencoded"
        return http.stream("POST", url, headers=told, content=form.encode())

    def _whole(self, response: httpx2.Response, until: float, url: str) -> bytes:
        found = bytearray()
        for piece in response.iter_raw():
            found += piece
            if len(found) > MAX_ANSWER:
                raise trouble(url, f"It answers more than {MAX_ANSWER} bytes.")
            if time.monotonic() > until:
                raise trouble(url, f"It did not answer within {self._seconds:g} s.")
        return bytes(found)


def trouble(url: str, why: str) -> ProviderTrouble:
    return ProviderTrouble(
        f"The sign-in provider does not answer as it should at {url[:200]}.",
        why=why,
        fix="Try again in a moment; `crucible login --name USER` and tokens work without it. If it stays, an "
        "administrator looks at the settings oidc_*.",
    )
