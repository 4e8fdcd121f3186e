"""A connection to the agents' listener, and the errors of every channel.

ChannelError
├── Unreachable    no response, or one that asks for a retry
├── Refused        a response that a retry is unlikely to change (`status`, `text`)
└── Gone           the control plane no longer wants the machine or attempt (410)
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from crucible.wire.http.client import BaseUrl, Exchange, HttpClient, HttpError, NotConnected, Request, Response

ANSWER_SECONDS = 15.0
MAX_ANSWER = 16 * 1024 * 1024
_RETRY_STATUSES = frozenset({408, 425, 429})


class ChannelError(Exception):
    """A call over a channel failed; the subclasses say why."""


class Unreachable(ChannelError):
    pass


class Refused(ChannelError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"the server answered {status}: {text}")
        self.status = status
        self.text = text


class Gone(ChannelError):
    pass


@dataclass(frozen=True)
class ServerAddress:
    """Where the agents' listener is. The file takes precedence: a restarted server may be elsewhere."""

    url: str | None = None
    file: Path | None = None

    def read(self) -> str:
        """Return the URL. Raises Unreachable if no server has written one yet."""
        try:
            text = self.file.read_text(encoding="utf-8").strip() if self.file is not None else ""
        except (OSError, UnicodeDecodeError):
            text = ""
        if text or self.url:
            return text or str(self.url)
        raise Unreachable("no server has written its address yet")


@dataclass(frozen=True)
class ServerReply:
    status: int
    body: bytes

    def json(self) -> dict[str, object]:
        """Return the JSON object in the body; an empty one if there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def connect(address: ServerAddress, bearer: str | None = None) -> HttpClient:
    """Return a client of the server at the address. Raises Unreachable if the address is not usable."""
    text = address.read()
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    try:
        return HttpClient(BaseUrl.parse(text), headers=headers)
    except ValueError as error:
        raise Unreachable(f"cannot connect to {text[:200]}: {error}") from error


class ServerConnection:
    """Connects on demand, and reads the address each time. For one thread. Every request must be idempotent."""

    def __init__(self, address: ServerAddress, bearer: str | None = None) -> None:
        self._address = address
        self._bearer = bearer
        self._client: HttpClient | None = None
        self._sent: Exchange | None = None

    def close(self) -> None:
        if self._sent is not None:
            self._sent.close()
        if self._client is not None:
            self._client.close()
        self._client = self._sent = None

    def ask(self, request: Request) -> ServerReply:
        """Return the reply if it is a 2xx or 304. Raises ChannelError."""
        return self.check(self.receive(request))

    def receive(self, request: Request) -> ServerReply:
        """Return the reply, whatever its status. Raises Unreachable."""
        return self._answer(self.open(request))

    def open(self, request: Request) -> Response:
        """Return the response with its body unread; the caller closes it. Raises Unreachable."""
        try:
            return self._connected().send(replace(request, repeatable=True))
        except HttpError as error:
            raise self._unreachable(error) from error

    def send(self, request: Request) -> None:
        """Send the request; `finish` returns its reply."""
        try:
            self._sent = self._connected().start(replace(request, repeatable=True))
        except HttpError as error:
            raise self._unreachable(error) from error

    @property
    def socket(self) -> socket.socket | None:
        """The socket on which the reply to `send` arrives."""
        return None if self._sent is None else self._sent.socket

    def finish(self) -> ServerReply:
        """Return the reply to the request of `send`."""
        assert self._sent is not None
        try:
            response = self._sent.finish()
        except HttpError as error:
            raise self._unreachable(error) from error
        self._sent = None
        return self._answer(response)

    def check(self, answer: ServerReply) -> ServerReply:
        """Return the reply if it is a 2xx or 304; else raise the ChannelError for its status."""
        if answer.status < 300 or answer.status == 304:
            return answer
        self.close()
        text = str(answer.json().get("detail") or answer.json().get("title") or "")[:500]
        if answer.status == 410:
            raise Gone(text or "no longer wanted")
        if answer.status >= 500 or answer.status in _RETRY_STATUSES:
            raise Unreachable(f"the server answered {answer.status} {text}".strip())
        raise Refused(answer.status, text)

    def _answer(self, response: Response) -> ServerReply:
        try:
            return ServerReply(response.status_code, response.read(MAX_ANSWER, ANSWER_SECONDS))
        except HttpError as error:
            raise self._unreachable(error) from error

    def _connected(self) -> HttpClient:
        if self._client is None or not self._client.has_connection():
            self._client = connect(self._address, self._bearer)
        return self._client

    def _unreachable(self, error: HttpError) -> Unreachable:
        self.close()
        what = "cannot connect to" if isinstance(error, NotConnected) else "no answer from"
        return Unreachable(f"{what} the server: {error}")
