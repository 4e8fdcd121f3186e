"""HTTP to one server with the standard library: connection reuse, timeouts, bounded responses, proxies, Unix sockets.

HttpError
├── NotConnected           no connection was made; `timed_out`: because of a timeout
├── ResponseTimeout        the response did not come in time
└── BadResponse            the connection ended too early, or the response is not HTTP
    └── ResponseTooLong    the response is longer than the reader's limit
"""

from __future__ import annotations

import http.client
import io
import math
import os
import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, BinaryIO, Optional, Union
from urllib.parse import quote, unquote_to_bytes, urlsplit

from crucible.wire.files.private import why_not_private

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
READ_SECONDS = 600.0
MAX_ANSWER = 64 * 1024 * 1024
KEEP_SECONDS = 5.0
"""Seconds of idle time after which a connection is not reused for a request that must not be sent twice."""

CHUNK = 64 * 1024
_PORTS = {"http": 80, "https": 443}

Headers = Mapping[str, str]
Body = Union[bytes, BinaryIO, Iterable[bytes], None]

_NONE: Headers = MappingProxyType({})


class HttpError(Exception):
    """There was no complete response; the subclasses say why."""


class NotConnected(HttpError):
    def __init__(self, why: str, *, late: bool = False) -> None:
        super().__init__(why)
        self.timed_out = late


class ResponseTimeout(HttpError):
    pass


class BadResponse(HttpError):
    pass


class ResponseTooLong(BadResponse):
    pass


@dataclass(frozen=True)
class BaseUrl:
    """The base URL of a server. `path` precedes every target, without a slash at its end.

    `socket` is the path of a Unix socket; `host` is then only what the Host header says.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    socket: str = ""

    @classmethod
    def parse(cls, url: str) -> BaseUrl:
        """Parse an http:// or https:// URL, or one of `unix_url`. Raises ValueError."""
        if not url.isprintable() or " " in url:
            raise ValueError("It contains characters that are not allowed in a URL.")
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
            return cls("unix", "localhost", 80, socket=os.fsdecode(unquote_to_bytes(parts.path)))
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("It does not start with http:// or https:// and a host.")
        path = quote(parts.path.rstrip("/"), safe="/%")
        return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], path)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


def unix_url(path: Union[str, os.PathLike[str]]) -> str:
    """Return the address of a server at a Unix socket: `unix:/absolute/path`, quoted as in other URLs."""
    return f"unix:{quote(os.fsencode(path))}"


@dataclass(frozen=True)
class Proxy:
    """A proxy with plain HTTP; `headers` are sent to the proxy itself."""

    host: str
    port: int
    headers: Headers


@dataclass(frozen=True)
class Request:
    """`target` is path and query. `seconds` is the timeout of the response's start, and of each further part.

    A `repeatable` request is sent once more if a reused connection turns out to be dead.
    """

    method: str
    target: str
    seconds: float = ANSWER_SECONDS
    connect_seconds: float = CONNECT_SECONDS
    headers: Headers = field(default_factory=dict)
    body: Body = None
    repeatable: bool = False


class HttpClient:
    """Sends requests to one server. Threads may share it: each request has a connection to itself.

    `tls` decides which certificates are trusted (default: those of the system, $SSL_CERT_FILE or $SSL_CERT_DIR).
    """

    def __init__(
        self,
        base: BaseUrl,
        *,
        headers: Headers = _NONE,
        tls: Optional[ssl.SSLContext] = None,
        proxy: Optional[Proxy] = None,
    ) -> None:
        self.base = base
        self._headers = headers
        self._tls = (tls or ssl.create_default_context()) if base.scheme == "https" else None
        self._proxy = proxy
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def close(self) -> None:
        while (kept := self._pop_idle()) is not None:
            kept[1].close()

    def keep(self, connection: http.client.HTTPConnection) -> None:
        self._idle.append((time.monotonic(), connection))

    def send(self, request: Request) -> Response:
        """Return the response, whatever its status, with its body unread; raises HttpError."""
        exchange = self.start(request)
        try:
            return exchange.finish()
        except BadResponse:
            if not (exchange.reused and request.repeatable and isinstance(request.body, (bytes, type(None)))):
                raise
        self.close()
        return self.start(request).finish()

    def start(self, request: Request) -> Exchange:
        """Send a request without waiting for its response; raises HttpError."""
        connection = self._take_idle(request.repeatable)
        reused = connection is not None
        if connection is None:
            connection = self.connect(request.connect_seconds)
        connection.sock.settimeout(request.seconds)
        try:
            with _http_errors():
                self._write(connection, request)
        except HttpError:
            connection.close()
            raise
        return Exchange(self, connection, request.seconds, reused)

    def connect(self, seconds: float = CONNECT_SECONDS) -> http.client.HTTPConnection:
        """Return a new connection, which the caller has to close; raises NotConnected."""
        connection = self._connection(seconds)
        try:
            connection.connect()
        except (TimeoutError, socket.timeout) as error:
            connection.close()
            raise NotConnected("The connection timed out.", late=True) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            raise NotConnected(str(error) or type(error).__name__) from error
        return connection

    def has_connection(self) -> bool:
        """Return whether there is an idle connection that the server has not closed."""
        while (kept := self._pop_idle()) is not None:
            if not _is_closed_by_server(kept[1].sock):
                self._idle.append(kept)  # with the time since which it has been idle
                return True
            kept[1].close()
        return False

    def _take_idle(self, repeatable: bool) -> Optional[http.client.HTTPConnection]:
        while (kept := self._pop_idle()) is not None:
            since, connection = kept
            is_fresh = repeatable or time.monotonic() - since < KEEP_SECONDS
            if is_fresh and not _is_closed_by_server(connection.sock):
                return connection
            connection.close()
        return None

    def _pop_idle(self) -> Optional[tuple[float, http.client.HTTPConnection]]:
        """Take an idle connection, or None. A single pop, as another thread may take the last one meanwhile."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        base, proxy = self.base, self._proxy
        if base.socket:
            return _UnixConnection(base, seconds)
        host, port = (base.host, base.port) if proxy is None else (proxy.host, proxy.port)
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=seconds, blocksize=CHUNK)
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls, blocksize=CHUNK)
        if proxy is not None:
            connection.set_tunnel(base.host, base.port, dict(proxy.headers))
        return connection

    def _write(self, connection: http.client.HTTPConnection, request: Request) -> None:
        plain_proxy = self._proxy if self._tls is None else None
        origin, more = ("", _NONE) if plain_proxy is None else (self.base.origin, plain_proxy.headers)
        headers = {**self._headers, **more, **request.headers}
        # A server that refuses a long body responds before all of it was sent, and closes: read that response.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, f"{origin}{self.base.path}{request.target}", request.body, headers)


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket. Connects only where no other user can have placed the socket."""

    def __init__(self, base: BaseUrl, seconds: float) -> None:
        super().__init__(base.host, base.port, timeout=seconds, blocksize=CHUNK)
        self._path = base.socket

    def connect(self) -> None:
        why = why_not_private(os.path.dirname(self._path))
        if why:
            raise OSError(f"the server's socket is not in a private folder: {why}")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Exchange:
    """A request that was sent, until its response has been read. `reused`: on a connection that was kept."""

    client: HttpClient
    connection: http.client.HTTPConnection
    seconds: float
    reused: bool

    @property
    def socket(self) -> socket.socket:
        """The socket on which the response will arrive."""
        return self.connection.sock

    def finish(self) -> Response:
        """Return the response, its body unread; raises HttpError."""
        reader = _Reader(self.connection.sock, self.seconds)
        reader.until = time.monotonic() + self.seconds
        # HTTPResponse only calls makefile() on its socket.
        self.connection.response_class = lambda _, **more: http.client.HTTPResponse(reader, **more)  # type: ignore[assignment, arg-type]
        try:
            with _http_errors():
                raw = self.connection.getresponse()
        except HttpError:
            self.connection.close()
            raise
        reader.until = math.inf
        return Response(raw.status, raw.reason, raw.headers, raw, reader, self)  # type: ignore[arg-type]  # as Mapping

    def close(self) -> None:
        self.connection.close()


class Response:
    """A response whose body is still to be read, whole or in pieces; close it afterwards."""

    def __init__(
        self,
        status_code: int,
        reason: str,
        headers: Headers,
        raw: http.client.HTTPResponse,
        reader: _Reader,
        exchange: Exchange,
        content: Optional[bytes] = None,
    ) -> None:
        self.status_code = status_code
        self.reason = reason
        self.headers = headers
        self._raw = raw
        self._reader = reader
        self._exchange = exchange
        self._content = content
        self._closed = False

    def read(self, limit: int = MAX_ANSWER, seconds: float = READ_SECONDS) -> bytes:
        """Return the whole body, and close; a second call returns it again. Raises HttpError, ResponseTooLong."""
        if self._content is None:
            self._reader.until = time.monotonic() + seconds
            parts: list[bytes] = []
            size = 0
            try:
                for piece in self.pieces():
                    parts.append(piece)
                    size += len(piece)
                    if size > limit:
                        raise ResponseTooLong(f"The response is longer than {limit} bytes.")
            finally:
                self.close()
            self._content = b"".join(parts)
        return self._content

    @property
    def content(self) -> bytes:
        return self.read()

    def pieces(self, size: int = CHUNK) -> Iterator[bytes]:
        """Yield the body as it arrives; raises HttpError, also if it ends too early."""
        with _http_errors():
            while piece := self._raw.read(size):
                yield piece
        if self._raw.length:
            raise BadResponse("The response ended too early.")

    def close(self) -> None:
        """Close the response. Its connection is reused if the response was read to its end."""
        if self._closed:
            return
        self._closed = True
        if self._raw.isclosed() and not self._raw.will_close:
            self._exchange.client.keep(self._exchange.connection)
        else:
            self._exchange.close()
            self._raw.close()


class _Reader(io.RawIOBase):
    """Reads a socket: each wait takes at most `seconds`, and all of them end at `until`."""

    def __init__(self, source: socket.socket, seconds: float) -> None:
        self._socket = source
        self._raw = source.makefile("rb", buffering=0)  # keeps the descriptor open when the connection is closed
        self._seconds = seconds
        self.until = math.inf

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, CHUNK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("The response takes too long.")
        self._socket.settimeout(min(self._seconds, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _is_closed_by_server(waiting: socket.socket) -> bool:
    """Return whether the server closed the connection: between two requests, nothing else can be readable."""
    poll = select.poll()
    poll.register(waiting, select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def _http_errors() -> Iterator[None]:
    """Convert the errors of a connection to HttpError."""
    try:
        yield
    except (TimeoutError, socket.timeout) as error:
        raise ResponseTimeout("The response did not arrive in time.") from error
    except (OSError, http.client.HTTPException) as error:
        raise BadResponse(str(error) or type(error).__name__) from error
