"""HTTP to one server: base URL, token, deadlines, problem answers, and repeats where they cannot do harm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlencode

from crucible import __version__
from crucible.client.transport.address import proxy_for, read_address
from crucible.client.transport.problems import error_from
from crucible.client.transport.retries import RetryPolicy
from crucible.client.transport.version_skew import VersionCheck
from crucible.core.errors import BadInput, CrucibleError, NotAllowed, TimedOut, Unreachable
from crucible.core.secret import Secret
from crucible.wire.http.client import (
    CONNECT_SECONDS,
    HttpClient,
    HttpError,
    NotConnected,
    Request,
    Response,
    ResponseTimeout,
)

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
        self._http = _http(endpoint)
        self._left: list[HttpClient] = []
        self._skew = VersionCheck(embedded=endpoint.embedded)

    def close(self) -> None:
        for http in (*self._left, self._http):
            http.close()

    def relocate(self) -> Endpoint:
        """Find the server again (an embedded one may have restarted on another port); raises Unreachable."""
        if self._relocate is not None:
            endpoint = self._relocate()
            if endpoint != self.endpoint:
                self._left.append(self._http)  # another thread may be using it
                self.endpoint, self._http = endpoint, _http(endpoint)
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
    ) -> Response:
        """Send and read the whole answer; an error answer is raised. `repeat` allows retries (reads: yes).

        What may be repeated is idempotent on the server: reads, content-addressed puts, keyed posts.
        """

        def send() -> Response:
            data, more = (content, {}) if body is None else (_encoded(body), {"Content-Type": "application/json"})
            asked = self._asked(method, _target(path, query), data, {**more, **(headers or {})}, seconds)
            return self._send(asked)

        repeated = method in ("GET", "HEAD") if repeat is None else repeat
        try:
            return RetryPolicy().run(send, self._again) if repeated else send()
        except HttpError as error:
            raise self._told(error) from error
        except _RetryLater as busy:
            raise busy.error from busy

    @contextmanager
    def download(self, path: str, *, headers: Mapping[str, str] | None = None) -> Iterator[Response]:
        """An answer whose body is read in pieces by the caller; 416 is left to the caller too."""
        try:
            response = self._http.send(self._asked("GET", path, None, headers or {}, None))
            try:
                if response.status_code >= 400 and response.status_code != 416:
                    raise error_from_response(response)
                yield response
            finally:
                response.close()
        except HttpError as error:
            raise self._told(error) from error

    def _asked(
        self, method: str, target: str, content: Content | None, headers: Mapping[str, str], seconds: float | None
    ) -> Request:
        wait = seconds or self._seconds
        data = content() if callable(content) else content
        return Request(method, target, wait, min(wait, CONNECT_SECONDS), headers, data)

    def _send(self, asked: Request) -> Response:
        response = self._http.send(asked)
        self._skew.check(response.headers)
        if response.status_code in _RETRIED:
            raise _RetryLater(error_from_response(response))
        if response.status_code >= 400 and asked.method != "HEAD":
            raise error_from_response(response)
        response.read()
        return response

    def _again(self, error: Exception) -> bool:
        """Whether to try once more; moves to where the server is now if it went away."""
        if isinstance(error, _RetryLater | ResponseTimeout) or (isinstance(error, NotConnected) and error.timed_out):
            return True
        if not isinstance(error, HttpError):
            return False
        if self._relocate is None:
            # A named server that refuses to be reached is told at once: waiting would only hide it.
            return not isinstance(error, NotConnected)
        self.relocate()
        return True

    def _told(self, error: HttpError) -> CrucibleError:
        if not isinstance(error, ResponseTimeout):
            return unreachable(self.endpoint, str(error))
        return TimedOut(
            f"The server at {self.endpoint.url} did not answer in time.",
            why="It is busy, or the network is.",
            fix="Try again, or set CRUCIBLE_REQUEST_SECONDS higher.",
        )


class _RetryLater(Exception):
    """The server asks to come back later; `error` is what to say if it never gets better."""

    def __init__(self, error: CrucibleError) -> None:
        super().__init__(str(error))
        self.error = error


def unreachable(endpoint: Endpoint, why: str) -> Unreachable:
    fix = (
        "Start it anew with `crucible up`; `crucible doctor` looks for the cause."
        if endpoint.embedded
        else "Check the address (--server, CRUCIBLE_SERVER, or `crucible login`) and that the server is up;"
        " without one named, or after `crucible logout`, Crucible runs its own."
    )
    return Unreachable(f"The server at {endpoint.url} does not answer.", why=why, fix=fix, url=endpoint.url)


def error_from_response(response: Response) -> CrucibleError:
    """The error an answer of 400 or above stands for, whatever its body."""
    try:
        problem = json.loads(response.content)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"The server answered {response.status_code} {response.reason}."}
    error = error_from(problem, response.status_code)
    if isinstance(error, NotAllowed) and not error.fix:
        error.fix = "Set CRUCIBLE_TOKEN to a valid token of that server."
    return error


def auth_headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token.reveal()}"} if endpoint.token else {}


def _http(endpoint: Endpoint) -> HttpClient:
    address = read_address(endpoint.url)
    token = endpoint.token.reveal() if endpoint.token else ""
    if not token.isascii() or not token.isprintable():
        raise NotAllowed(
            "The token is none.", why="It holds letters that no token has.", fix="Set CRUCIBLE_TOKEN to a valid token."
        )
    headers = {"User-Agent": f"crucible/{__version__}", **auth_headers(endpoint)}
    return HttpClient(address, headers=headers, proxy=proxy_for(address))


def _encoded(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _target(path: str, query: Query | None) -> str:
    """Raises BadInput for a name in the path that is empty: it would ask for something else, or for nothing."""
    if "//" in path or path.endswith("/"):
        fix = "Give a name or an id; a variable of the shell may be unset."
        raise BadInput("A name is empty.", why=f"It would ask for {path}.", fix=fix)
    pairs = _pairs(query)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _pairs(query: Query | None) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in (query or {}).items():
        if isinstance(value, str | int | float):
            pairs.append((key, str(value)))
        elif value is not None:
            pairs.extend((key, item) for item in value)
    return pairs
