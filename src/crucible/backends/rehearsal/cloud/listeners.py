"""The cloud's HTTP listeners: a Unix socket that only its user can reach, and a TCP port if one is asked for."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import socketserver
import stat
import sys
import tempfile
import uuid
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from .desk import ConnectionCut, Dispatcher
from .exchange import Request, Response

HOST = "127.0.0.1"
SOCKET = "cloud.sock"
MAX_BODY = 1024 * 1024
REQUEST_SECONDS = 30.0


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers requests at a TCP port of this computer."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int] | str, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        super().__init__(address, Handler)  # type: ignore[arg-type]  # of a Unix socket, the address is its path

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not report clients that disconnected in the middle of a request."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class UnixListener(Listener):
    address_family = socket.AF_UNIX


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS
    server: Listener

    def _handle(self) -> None:
        self.close_connection = True
        try:
            answer = self.server.dispatcher.answer(self._request(), self._bearer())
        except ValueError as error:
            answer = Response(400, {"error": {"code": "bad_request", "message": str(error)}})
        except ConnectionCut:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(answer)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle

    def _request(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= MAX_BODY:
            raise ValueError("the body is too large")
        raw = self.rfile.read(length)
        body = json.loads(raw) if raw else {}
        if not isinstance(body, dict):
            raise ValueError("the body has to be a JSON object")
        url = urlsplit(self.path)
        return Request(self.command, url.path, dict(parse_qsl(url.query, keep_blank_values=True)), body)

    def _bearer(self) -> str:
        kind, _, key = (self.headers.get("Authorization") or "").partition(" ")
        return key if kind == "Bearer" else ""

    def _send(self, answer: Response) -> None:
        request_id = f"req-{uuid.uuid4().hex[:16]}"
        body = json.dumps({**answer.body, "request_id": request_id}).encode()
        self.send_response(answer.status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in {
            **headers,
            "X-Request-ID": request_id,
            "Connection": "close",
            **answer.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests: tests make thousands."""


def listen_on_port(port: int, dispatcher: Dispatcher) -> Listener:
    return Listener((HOST, port), dispatcher)


def listen_on_socket(state: Path, dispatcher: Dispatcher) -> Listener:
    """Listen in the state folder, or in a private folder with a short path.

    That is for a path of more than about 100 bytes, a disk that holds no sockets, and a state folder that is open to
    other users.
    """
    if _is_private(state):
        with contextlib.suppress(OSError):
            return _listen_at(state.absolute() / SOCKET, dispatcher)
    digest = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"crucible-cloud-{os.geteuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(folder):
        raise PermissionError(f"{folder} could be another user's")
    return _listen_at(folder / SOCKET, dispatcher)


def remove_socket(listener: Listener, state: Path) -> None:
    """Remove the socket of a closed listener, while the caller holds the folder's lock."""
    path = Path(str(listener.server_address))
    with contextlib.suppress(OSError):  # a read-only disk; the next cloud replaces it
        path.unlink()
        if path.parent != state.absolute():
            path.parent.rmdir()


def _listen_at(path: Path, dispatcher: Dispatcher) -> Listener:
    path.unlink(missing_ok=True)  # of a killed cloud: the caller holds the folder's lock
    return UnixListener(str(path), dispatcher)


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
