"""HTTP to one server on the standard library: kept connections, deadlines, proxies.

A command that asks one question must not spend its time loading a large library (decision 0016).

HttpError
├── NotConnected   no connection came about; `late`: because nobody answered in time
├── Late           the answer did not come in time
└── Broken         the connection ended too early, or what came is no HTTP
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from crucible.client.address import Address, Proxy

KEEP_SECONDS = 5.0
"""How long a connection may wait for its next request; servers keep theirs longer."""

CHUNK = 64 * 1024

Headers: TypeAlias = Mapping[str, str]
Body: TypeAlias = bytes | Iterable[bytes] | None

_NONE: Headers = MappingProxyType({})


class HttpError(Exception):
    """No whole answer came; the subclasses say why."""


class NotConnected(HttpError):
    def __init__(self, why: str, *, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


class Late(HttpError):
    pass


class Broken(HttpError):
    pass


@dataclass(frozen=True)
class Request:
    """`target` is path and query. `seconds`: how long each wait may be; `connect_seconds`: that for the connection."""

    method: str
    target: str
    seconds: float
    connect_seconds: float
    headers: Headers = field(default_factory=dict)
    body: Body = None


@dataclass
class Response:
    """An answer whose body waits to be read: whole by `content`, or in pieces; then it is to be closed."""

    status_code: int
    reason: str
    headers: Headers
    _raw: http.client.HTTPResponse = field(repr=False)
    _http: Http = field(repr=False)
    _connection: http.client.HTTPConnection = field(repr=False)
    _read: bytes | None = field(default=None, repr=False)
    _closed: bool = False

    def read(self) -> bytes:
        """All of it; what breaks on the way breaks here. Again is harmless."""
        if self._read is None:
            with _told():
                self._read = self._raw.read()
            self.close()
        return self._read

    @property
    def content(self) -> bytes:
        return self.read()

    def pieces(self, size: int = CHUNK) -> Iterator[bytes]:
        with _told():
            while piece := self._raw.read(size):
                yield piece
        if self._raw.length:
            raise Broken("The answer ended too early.")

    def close(self) -> None:
        """The connection serves the next request if this answer was read to its end."""
        if self._closed:
            return
        self._closed = True
        if self._raw.isclosed() and not self._raw.will_close:
            self._http.keep(self._connection)
        else:
            self._connection.close()
            self._raw.close()


class Http:
    """Requests to one address. Several threads may use it: each request has a connection to itself."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Headers = _NONE,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self._address = address
        self._headers = headers
        self._tls = tls
        self._proxy = proxy
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def close(self) -> None:
        while (kept := self._kept()) is not None:
            kept[1].close()

    def keep(self, connection: http.client.HTTPConnection) -> None:
        self._idle.append((time.monotonic(), connection))

    def send(self, request: Request) -> Response:
        """The answer, whatever it says, its body unread; raises HttpError."""
        connection = self._waiting(request) or self._connect(request)
        try:
            with _told():
                self._write(connection, request)
                raw = connection.getresponse()
        except HttpError:
            connection.close()
            raise
        return Response(raw.status, raw.reason, raw.headers, raw, self, connection)  # type: ignore[arg-type]  # as Mapping

    def _waiting(self, request: Request) -> http.client.HTTPConnection | None:
        while (kept := self._kept()) is not None:
            since, connection = kept
            if time.monotonic() - since < KEEP_SECONDS and not _ended(connection.sock):
                connection.sock.settimeout(request.seconds)
                return connection
            connection.close()
        return None

    def _kept(self) -> tuple[float, http.client.HTTPConnection] | None:
        """Taken in one step: between a look and a pop another thread may have taken the last."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self, request: Request) -> http.client.HTTPConnection:
        connection = self._connection(request.connect_seconds)
        try:
            connection.connect()
        except TimeoutError as error:
            connection.close()
            raise NotConnected("The connection was not answered in time.", late=True) from error
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            connection.close()
            raise NotConnected(str(error) or type(error).__name__) from error
        connection.sock.settimeout(request.seconds)
        return connection

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        address, proxy = self._address, self._proxy
        host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=seconds)
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(address.host, address.port, dict(proxy.headers))
        return connection

    def _write(self, connection: http.client.HTTPConnection, request: Request) -> None:
        """A server that refuses a long body answers before it was sent whole; its answer is waiting then."""
        plain_proxy = self._proxy if self._tls is None else None
        origin, more = ("", _NONE) if plain_proxy is None else (self._address.origin, plain_proxy.headers)
        headers = {**self._headers, **more, **request.headers}
        try:
            connection.request(request.method, f"{origin}{self._address.path}{request.target}", request.body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if request.body is None:
                raise


def _ended(waiting: socket.socket) -> bool:
    """Whether the server has hung up: nothing else can be there to read between two requests."""
    poll = select.poll()
    poll.register(waiting, select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong on a connection, in our own words."""
    try:
        yield
    except TimeoutError as error:
        raise Late("The answer did not come in time.") from error
    except (OSError, http.client.HTTPException) as error:
        raise Broken(str(error) or type(error).__name__) from error
