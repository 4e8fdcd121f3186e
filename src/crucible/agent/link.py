"""One kept-alive HTTP connection to the agents' listener. Every wait has a deadline; one thread at a time.

LinkError
├── Unreachable    no answer, or one that says "later": try again
├── Refused        an answer that trying again will hardly change (`status`, `text`)
└── Gone           what was asked about is no longer wanted (410)
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Union
from urllib.parse import urlsplit

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
MAX_ANSWER = 16 * 1024 * 1024
_LATER = frozenset({408, 425, 429})

Body = Union[bytes, BinaryIO, None]


class LinkError(Exception):
    """Nothing useful came back; the subclasses say why."""


class Unreachable(LinkError):
    pass


class Refused(LinkError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"the server answered {status}: {text}")
        self.status = status
        self.text = text


class Gone(LinkError):
    pass


@dataclass(frozen=True)
class Address:
    """Where the agents' listener is. The file wins: a server that was started again may have another port."""

    url: str | None = None
    file: Path | None = None

    def read(self) -> str:
        try:
            text = self.file.read_text(encoding="utf-8").strip() if self.file is not None else ""
        except (OSError, UnicodeDecodeError):
            text = ""
        if text or self.url:
            return text or str(self.url)
        raise Unreachable("no server has said where it listens")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """The object in the body; an empty one when it holds none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Request:
    """`size` is needed with a file as body. `seconds` is how long the answer may take to begin."""

    method: str
    path: str
    body: Body = None
    size: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = ANSWER_SECONDS


class Link:
    """Connects on demand; drops the connection after anything unusual, so that the address is read again."""

    def __init__(self, address: Address, bearer: str | None = None) -> None:
        self._address = address
        self._bearer = bearer
        self._connection: http.client.HTTPConnection | None = None
        self._used = False
        self._base = ""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def ask(self, request: Request) -> Answer:
        """The answer, if it is a 2xx or 304; else LinkError."""
        return self.check(self.receive(request))

    def receive(self, request: Request) -> Answer:
        """The answer, whatever it says; Unreachable when none came."""
        return self._answer(self.open(request))

    def finish(self) -> Answer:
        """The answer to what was sent by `send`."""
        return self._answer(self.response())

    @property
    def socket(self) -> socket.socket | None:
        """Where the next bytes of an answer will come."""
        return None if self._connection is None else self._connection.sock

    def _answer(self, response: http.client.HTTPResponse) -> Answer:
        try:
            answer = Answer(response.status, _headers(response), self._read(response, ANSWER_SECONDS))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"the answer broke off: {error}") from error
        if answer.status >= 400 or response.will_close:
            self.close()
        return answer

    def open(self, request: Request) -> http.client.HTTPResponse:
        """The answer with its body unread. The link is free again once the body was read to its end."""
        self.send(request)
        try:
            return self.response()
        except Unreachable:
            if not self._used or not (request.body is None or isinstance(request.body, bytes)):
                raise
        # The other side may have closed a kept connection meanwhile; everything we ask may be asked twice.
        self.send(request)
        return self.response()

    def send(self, request: Request) -> None:
        """Send the request; its answer comes from `response` or `finish`."""
        connection = self._connect()
        assert connection.sock is not None
        connection.sock.settimeout(request.seconds)
        try:
            connection.request(request.method, self._base + request.path, request.body, self._all_headers(request))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have answered before it read everything; `response` finds out
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"cannot send to the server: {error}") from error

    def response(self) -> http.client.HTTPResponse:
        assert self._connection is not None
        try:
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"no answer from the server: {error}") from error
        return response

    def check(self, answer: Answer) -> Answer:
        """The answer itself, if it is good; else the error that it stands for."""
        if answer.status < 300 or answer.status == 304:
            return answer
        self.close()
        text = str(answer.json().get("detail") or answer.json().get("title") or "")[:500]
        if answer.status == 410:
            raise Gone(text or "no longer wanted")
        if answer.status >= 500 or answer.status in _LATER:
            raise Unreachable(f"the server answered {answer.status} {text}".strip())
        raise Refused(answer.status, text)

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is not None and self._connection.sock is not None:
            self._used = True
            return self._connection
        self.close()
        self._used = False
        text = self._address.read()
        try:
            url = urlsplit(text)
            self._base = url.path.rstrip("/")
            self._connection = _connection(url.scheme, url.hostname or "", url.port)
            self._connection.connect()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"cannot connect to {text[:200]}: {error}") from error
        return self._connection

    def _all_headers(self, request: Request) -> dict[str, str]:
        headers = dict(request.headers)
        if self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._bearer}"
        if request.size is not None:
            headers["Content-Length"] = str(request.size)
        return headers

    @staticmethod
    def _read(response: http.client.HTTPResponse, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        parts, size = [], 0
        while True:
            part = response.read(65536)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER or time.monotonic() > deadline:
                raise http.client.HTTPException("it is too long, or takes too long")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context, blocksize=65536)
    return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS, blocksize=65536)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
