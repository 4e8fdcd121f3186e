"""Asking a provider's price interface: bounded in time and size, and told plainly when it answers nonsense."""

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
WHOLE_SECONDS = 600.0
MOST_BYTES = 64 * 1024**2


class BadAnswer(Unreachable):
    """A provider answered what cannot be used; the prices in use stay."""

    code: ClassVar[str] = "bad_answer"
    http_status: ClassVar[int] = 502


LATER = "Try again later; `crucible catalog list` says how old the prices are."


def bad_answer(provider: str, why: str, fix: str = LATER) -> BadAnswer:
    what = f"The prices of {provider} were not refreshed."
    return BadAnswer(what, why=f"{why} The old ones stay in use.", fix=fix, provider=provider)


class Fetcher:
    """One refresh: each request has its deadline, and so has the whole. `transport` None: the network."""

    def __init__(
        self,
        provider: str,
        transport: httpx2.BaseTransport | None = None,
        *,
        seconds: float = WHOLE_SECONDS,
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
        limit: int = MOST_BYTES,
    ) -> object:
        """The answer's JSON. Raises BadAnswer for anything else, TimedOut, Unreachable."""
        with self._answer(url, query, headers) as response:
            content = b"".join(self._bounded(response, limit))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise bad_answer(self._provider, f"It answered what is no JSON ({type(error).__name__}).") from error

    def lines(self, url: str, *, limit: int) -> Iterator[str]:
        """The answer's lines as they arrive."""
        rest = b""
        with self._answer(url, None, None) as response:
            for piece in self._bounded(response, limit):
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > MOST_BYTES:
                    raise bad_answer(self._provider, "It answered one endless line.")
                yield from (line.decode(errors="replace") + "\n" for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    @contextmanager
    def _answer(
        self, url: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> Iterator[httpx2.Response]:
        self._check_time()
        try:
            with self._http.stream("GET", url, params=query, headers=dict(headers or {})) as response:
                self._check_status(response)
                yield response
        except httpx2.TimeoutException as error:
            raise self._late() from error
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
            why = f"{urlsplit(url).hostname} does not answer as it should: {error}."
            fix = "Check the connection and try again; the old prices stay in use."
            raise Unreachable(f"The prices of {self._provider} were not refreshed.", why=why, fix=fix) from error

    def _bounded(self, response: httpx2.Response, limit: int) -> Iterator[bytes]:
        seen = 0
        for piece in response.iter_bytes():
            seen += len(piece)
            if seen > limit:
                raise bad_answer(self._provider, f"It answered more than {limit // 1024**2} MiB.")
            self._check_time()
            yield piece

    def _check_time(self) -> None:
        if self._clock() > self._end:
            raise self._late()

    def _late(self) -> TimedOut:
        return TimedOut(
            f"The prices of {self._provider} were not refreshed in time.",
            why="Its price interface answers slowly, or not at all. The old prices stay in use.",
            fix="Try again, perhaps for fewer regions: --region.",
        )

    def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            fix = "Start the server with a valid key in its environment; docs/catalog.md names the variable."
            raise bad_answer(self._provider, f"It answered {status}: nobody gets in without a valid key.", fix)
        if status != 200:
            raise bad_answer(self._provider, f"It answered {status}.")
