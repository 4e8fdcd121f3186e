"""A real receiver of notifications on this computer; keeps messages and responds as a test decides."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from crucible.client import verify_webhook


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        return verify_webhook(secret, self.headers, self.body)


@dataclass(frozen=True)
class Answer:
    """A response. `parts` are sent one by one; before each except the first it waits for `Receiver.go`."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[bytes, ...] = (b"thanks",)
    silent: bool = False
    """Whether to send nothing until `Receiver.go`."""


class Receiver:
    """Responds with `answers` in turn, then with `usual`. Port 0 is any free port, kept over restarts."""

    def __init__(self, port: int = 0, certificate: tuple[Path, Path] | None = None) -> None:
        self.received: list[Received] = []
        self.answers: list[Answer] = []
        self.usual = Answer()
        self.go = threading.Event()
        self._certificate = certificate
        self.port = port

    def __enter__(self) -> Receiver:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def url(self, host: str = "127.0.0.1", path: str = "/hook") -> str:
        return f"{'https' if self._certificate else 'http'}://{host}:{self.port}{path}"

    def verified(self, secret: str) -> list[dict[str, Any]]:
        return [one.verified(secret) for one in tuple(self.received)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(Received(self.path, dict(self.headers), body))
                receiver._answer(self)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        answer = self.answers.pop(0) if self.answers else self.usual
        if answer.silent:
            self.go.wait(60)
        try:
            request.send_response(answer.status)
            for name, value in answer.headers.items():
                request.send_header(name, value)
            request.end_headers()
            for number, part in enumerate(answer.parts):
                if number:
                    self.go.wait(60)
                request.wfile.write(part)
        except OSError:
            return  # it did not wait for us
