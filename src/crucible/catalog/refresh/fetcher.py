"""Fetch from a provider's price interface, with limits of time and size, and errors for unusable responses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import urlsplit

import httpx2

from crucible.core.errors import TimedOut, Unreachable

REQUEST_SECONDS = 30.0
TOTAL_SECONDS = 600.0
MAX_BYTES = 64 * 1024**2


class BadAnswer(Unreachable):
    """A provider's response cannot be used. The old prices stay in use."""

    code: ClassVar[str] = "bad_answer"
    http_status: ClassVar[int] = 502


TRY_LATER = "Try again later; `crucible catalog list` shows how old the prices are."


def bad_answer(provider: str, why: str, fix: str = TRY_LATER) -> BadAnswer:
    what = f"The prices of {provider} were not refreshed."
    return BadAnswer(what, why=f"{why} The old ones stay in use.", fix=fix, provider=provider)


class Fetcher:
    """HTTP client for one refresh, with a timeout for each request and `seconds` for all of them together."""

    def __init__(
        self,
        provider: str,
        transport: httpx2.BaseTransport | None = None,
        *,
        seconds: float = TOTAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._end = clock() + seconds
        timeout = httpx2.Timeout(min(REQUEST_SECONDS, seconds))
        self._http = httpx2.Client(transport=transport, timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def json(
        self,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_BYTES,
    ) -> object:
        """Return the JSON of a response. Raises BadAnswer for anything else, TimedOut or Unreachable."""
        with self._open(url, query, headers) as response:
            content = b"".join(self._bounded(response, limit))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise bad_answer(self._provider, f"Its response is not JSON ({type(error).__name__}).") from error

    def lines(self, url: str, *, limit: int) -> Iterator[str]:
        """Yield the lines of a response as they arrive. Raises as `json` does."""
        rest = b""
        with self._open(url, None, None) as response:
            for piece in self._bounded(response, limit):
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > MAX_BYTES:
                    raise bad_answer(self._provider, "A line of its response is too long.")
                yield from (line.decode(errors="replace") + "\n" for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    @contextmanager
    def _open(
        self, url: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> Iterator[httpx2.Response]:
        self._check_time()
        try:
            with self._http.stream("GET", url, params=query, headers=dict(headers or {})) as response:
                self._check_status(response)
                yield response
        except httpx2.TimeoutException as error:
            raise self._timed_out() from error
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
            why = f"The request to {urlsplit(url).hostname} failed: {error}."
            fix = "Check the connection and try again. The old prices stay in use."
            raise Unreachable(f"The prices of {self._provider} were not refreshed.", why=why, fix=fix) from error

    def _bounded(self, response: httpx2.Response, limit: int) -> Iterator[bytes]:
        received = 0
        for piece in response.iter_bytes():
            received += len(piece)
            if received > limit:
                raise bad_answer(self._provider, f"Its response is larger than {limit // 1024**2} MiB.")
            self._check_time()
            yield piece

    def _check_time(self) -> None:
        if self._clock() > self._end:
            raise self._timed_out()

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"The prices of {self._provider} were not refreshed in time.",
            why="Its price interface is slow or does not respond. The old prices stay in use.",
            fix="Try again, or refresh fewer regions with --region.",
        )

    def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            fix = "Start the server with a valid key in its environment; docs/catalog.md names the variable."
            raise bad_answer(self._provider, f"It responded with {status}: it requires a valid key.", fix)
        if status != 200:
            raise bad_answer(self._provider, f"It responded with {status}.")
