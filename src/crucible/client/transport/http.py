"""HTTP to one server: base URL, token, timeouts, errors, and retries where they are safe."""

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
"""A request body; a function that opens it again for each attempt."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a server and its token. `embedded`: our own server, found or started in the state folder."""

    url: str
    token: Secret | None = None
    embedded: bool = False


class Transport:
    """Sends requests to one server. `relocate` returns where it is now, after it stopped answering."""

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
        self._retired: list[HttpClient] = []
        self._skew = VersionCheck(embedded=endpoint.embedded)

    def close(self) -> None:
        for http in (*self._retired, self._http):
            http.close()

    def relocate(self) -> Endpoint:
        """Find the server again: an embedded one may have restarted on another port. Raises Unreachable."""
        if self._relocate is not None:
            endpoint = self._relocate()
            if endpoint != self.endpoint:
                self._retired.append(self._http)  # not closed yet: another thread may be using it
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
        """Send a request and return its response, read in full. Raises an error response as the error it describes.

        `repeat` allows retries (default: for reads). Only requests that are idempotent on the server may be retried:
        reads, content-addressed puts, posts with a key.
        """

        def send() -> Response:
            data, more = (content, {}) if body is None else (_encoded(body), {"Content-Type": "application/json"})
            request = self._request_of(method, _target(path, query), data, {**more, **(headers or {})}, seconds)
            return self._send(request)

        repeated = method in ("GET", "HEAD") if repeat is None else repeat
        try:
            return RetryPolicy().run(send, self._should_retry) if repeated else send()
        except HttpError as error:
            raise self._error_from(error) from error
        except _RetryLater as later:
            raise later.error from later

    @contextmanager
    def download(self, path: str, *, headers: Mapping[str, str] | None = None) -> Iterator[Response]:
        """Yield a response whose body the caller reads in pieces. Raises an error response, except 416."""
        try:
            response = self._http.send(self._request_of("GET", path, None, headers or {}, None))
            try:
                if response.status_code >= 400 and response.status_code != 416:
                    raise error_from_response(response)
                yield response
            finally:
                response.close()
        except HttpError as error:
            raise self._error_from(error) from error

    def _request_of(
        self, method: str, target: str, content: Content | None, headers: Mapping[str, str], seconds: float | None
    ) -> Request:
        wait = seconds or self._seconds
        data = content() if callable(content) else content
        return Request(method, target, wait, min(wait, CONNECT_SECONDS), headers, data)

    def _send(self, request: Request) -> Response:
        response = self._http.send(request)
        self._skew.check(response.headers)
        if response.status_code in _RETRIED:
            raise _RetryLater(error_from_response(response))
        if response.status_code >= 400 and request.method != "HEAD":
            raise error_from_response(response)
        response.read()
        return response

    def _should_retry(self, error: Exception) -> bool:
        """Return whether to retry, after finding the server again if it went away."""
        if isinstance(error, _RetryLater | ResponseTimeout) or (isinstance(error, NotConnected) and error.timed_out):
            return True
        if not isinstance(error, HttpError):
            return False
        if self._relocate is None:
            # The user named this server: report at once that it cannot be reached, waiting would only hide it.
            return not isinstance(error, NotConnected)
        self.relocate()
        return True

    def _error_from(self, error: HttpError) -> CrucibleError:
        if not isinstance(error, ResponseTimeout):
            return unreachable(self.endpoint, str(error))
        return TimedOut(
            f"The server at {self.endpoint.url} did not answer in time.",
            why="The server or the network is busy.",
            fix="Try again, or set CRUCIBLE_REQUEST_SECONDS higher.",
        )


class _RetryLater(Exception):
    """The server asks to retry later; `error` is raised after the last attempt."""

    def __init__(self, error: CrucibleError) -> None:
        super().__init__(str(error))
        self.error = error


def unreachable(endpoint: Endpoint, why: str) -> Unreachable:
    fix = (
        "Restart it with `crucible up`; `crucible doctor` looks for the cause."
        if endpoint.embedded
        else "Check the address (--server, CRUCIBLE_SERVER, or `crucible login`) and that the server is up."
        " Without a named server, or after `crucible logout`, Crucible runs its own."
    )
    return Unreachable(f"The server at {endpoint.url} does not answer.", why=why, fix=fix, url=endpoint.url)


def error_from_response(response: Response) -> CrucibleError:
    """Return the error of a response with status 400 or above, whatever its body."""
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
            "The token is not valid.",
            why="It has invalid characters.",
            fix="Set CRUCIBLE_TOKEN to a valid token.",
        )
    headers = {"User-Agent": f"crucible/{__version__}", **auth_headers(endpoint)}
    return HttpClient(address, headers=headers, proxy=proxy_for(address))


def _encoded(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _target(path: str, query: Query | None) -> str:
    """Return the path with its query. Raises BadInput for an empty name in the path, which would name another route."""
    if "//" in path or path.endswith("/"):
        fix = "Give a name or an id; a shell variable may be unset."
        raise BadInput("A name is empty.", why=f"The request would be for {path}.", fix=fix)
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
