"""HTTP to one server: base URL, token, deadlines, problem answers, and repeats where they cannot do harm."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx2
import stamina

from crucible.client.problems import error_from
from crucible.client.skew import Skew
from crucible.core.errors import BadInput, CrucibleError, NotAllowed, TimedOut, Unreachable
from crucible.core.secret import Secret

CONNECT_SECONDS = 5.0
ATTEMPTS = 5
RETRY_SECONDS = 20.0

_RETRIED = frozenset({429, 502, 503})

Query: TypeAlias = Mapping[str, str | int | float | Sequence[str] | None]
Content: TypeAlias = bytes | Callable[[], Iterator[bytes]]
"""A request body; a function that opens it anew where the request may be repeated."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and the token it wants. `embedded`: ours, found or started in the state folder."""

    url: str
    token: Secret | None = None
    embedded: bool = False


class Transport:
    """Requests to one endpoint. `relocate` says where the server is now, after it stopped answering."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        seconds: float = 30.0,
        relocate: Callable[[], Endpoint] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._seconds = seconds
        self._relocate = relocate
        self._http = _client(endpoint, seconds)
        self._left: list[httpx2.Client] = []
        self._skew = Skew(embedded=endpoint.embedded)

    def close(self) -> None:
        for http in (*self._left, self._http):
            http.close()

    def moved(self) -> Endpoint:
        """Find the server again (an embedded one may have restarted on another port); raises Unreachable."""
        if self._relocate is not None:
            endpoint = self._relocate()
            if endpoint != self.endpoint:
                self._left.append(self._http)  # another thread may be using it
                self.endpoint, self._http = endpoint, _client(endpoint, self._seconds)
        return self.endpoint

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool | None = None,
        seconds: float | None = None,
    ) -> httpx2.Response:
        """Send and read the whole answer; an error answer is raised. `repeat` allows retries (reads: yes).

        What may be repeated is idempotent on the server: reads, content-addressed puts, keyed posts.
        """

        def send() -> httpx2.Response:
            return self._send(method, path, query, body, content, headers, seconds or self._seconds)

        repeated = method in ("GET", "HEAD") if repeat is None else repeat
        try:
            return self._repeat(send) if repeated else send()
        except httpx2.TimeoutException as error:
            raise self._late(error) from error
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        except _Busy as busy:
            raise busy.error from busy

    @contextmanager
    def download(self, path: str, *, headers: Mapping[str, str] | None = None) -> Iterator[httpx2.Response]:
        """An answer whose body is read in pieces by the caller; 416 is left to the caller too."""
        request = self._http.build_request("GET", path, headers=dict(headers or {}))
        try:
            response = self._http.send(request, stream=True)
            try:
                if response.status_code >= 400 and response.status_code != 416:
                    response.read()
                    raise problem_of(response)
                yield response
            finally:
                response.close()
        except httpx2.TimeoutException as error:
            raise self._late(error) from error
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        content: Content | None,
        headers: Mapping[str, str] | None,
        seconds: float,
    ) -> httpx2.Response:
        response = self._http.request(
            method,
            path,
            params=_pairs(query),
            json=body,
            content=content() if callable(content) else content,
            headers=dict(headers or {}),
            timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
        )
        self._skew.check(response.headers)
        if response.status_code in _RETRIED:
            raise _Busy(problem_of(response))
        if response.status_code >= 400 and method != "HEAD":
            raise problem_of(response)
        return response

    def _repeat(self, send: Callable[[], httpx2.Response]) -> httpx2.Response:
        caller = stamina.RetryingCaller(
            attempts=ATTEMPTS, timeout=RETRY_SECONDS, wait_initial=0.1, wait_max=2.0, wait_jitter=0.1
        )
        return caller(self._again, send)

    def _again(self, error: Exception) -> bool:
        """Whether to try once more; moves to where the server is now if it went away."""
        if isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.TimeoutException):
            if self._relocate is None:
                # A named server that refuses to be reached is told at once: waiting would only hide it.
                return not isinstance(error, httpx2.ConnectError)
            self.moved()
            return True
        return isinstance(error, _Busy | httpx2.TimeoutException)

    def _unreachable(self, error: Exception) -> Unreachable:
        return unreachable(self.endpoint, str(error))

    def _late(self, error: Exception) -> CrucibleError:
        if isinstance(error, httpx2.ConnectTimeout):
            return unreachable(self.endpoint, "The connection was not answered in time.")
        return TimedOut(
            f"The server at {self.endpoint.url} did not answer in time.",
            why="It is busy, or the network is.",
            fix="Try again, or set CRUCIBLE_REQUEST_SECONDS higher.",
        )


class _Busy(Exception):
    """The server asks to come back later; `error` is what to say if it never gets better."""

    def __init__(self, error: CrucibleError) -> None:
        super().__init__(str(error))
        self.error = error


def unreachable(endpoint: Endpoint, why: str) -> Unreachable:
    fix = (
        "Start it anew with `crucible up`; `crucible doctor` looks for the cause."
        if endpoint.embedded
        else "Check the address (--server, CRUCIBLE_SERVER) and that the server is up;"
        " without one named, Crucible runs its own."
    )
    return Unreachable(f"The server at {endpoint.url} does not answer.", why=why, fix=fix, url=endpoint.url)


def problem_of(response: httpx2.Response) -> CrucibleError:
    """The error an answer of 400 or above stands for, whatever its body."""
    try:
        problem = json.loads(response.content)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"The server answered {response.status_code} {response.reason_phrase}."}
    error = error_from(problem, response.status_code)
    if isinstance(error, NotAllowed) and not error.fix:
        error.fix = "Set CRUCIBLE_TOKEN to a valid token of that server."
    return error


def bearer(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token.reveal()}"} if endpoint.token else {}


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _client(endpoint: Endpoint, seconds: float) -> httpx2.Client:
    try:
        return httpx2.Client(
            base_url=endpoint.url,
            headers=bearer(endpoint),
            timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            # A proxy would look for the loopback on its own computer.
            trust_env=not is_loopback(endpoint.url),
            verify=trusted(endpoint.url),
        )
    except httpx2.InvalidURL as error:
        raise BadInput(f"{endpoint.url!r} is no address of a server.", why=str(error)) from error
    except UnicodeEncodeError as error:
        raise NotAllowed(
            "The token is none.", why="It holds letters that no token has.", fix="Set CRUCIBLE_TOKEN to a valid token."
        ) from error


def trusted(url: str) -> ssl.SSLContext | bool:
    """Whose certificates are believed: the system's, as SSL_CERT_FILE and SSL_CERT_DIR say, as for the agents too.

    They take time to load, and plain http has none.
    """
    return False if url.startswith("http://") else ssl.create_default_context()


def _pairs(query: Query | None) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for key, value in (query or {}).items():
        if isinstance(value, str | int | float):
            pairs.append((key, str(value)))
        elif value is not None:
            pairs.extend((key, item) for item in value)
    return pairs
