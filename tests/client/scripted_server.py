"""A server that sends scripted bytes and keeps the requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SECONDS = 10.0


class ScriptedServer:
    """Each item of `script` is a connection with one response per request; then the server closes it.

    None as a response means silence until the end. `path`: listen on a Unix socket there.
    """

    def __init__(self, *script: Sequence[bytes | None], whole: bool = True, path: Path | None = None) -> None:
        self._script = script
        self._whole = whole
        self._done = threading.Event()
        self.requests: list[bytes] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0)) if path is None else _listen(path)
        self._listening.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._listening.close()
        self._thread.join(SECONDS)

    def _run(self) -> None:
        for answers in self._script:
            connection, _ = self._listening.accept()
            connection.settimeout(SECONDS)
            self.connections += 1
            with connection:
                self._serve(connection, answers)

    def _serve(self, connection: socket.socket, answers: Sequence[bytes | None]) -> None:
        for answer in answers:
            if answer is None:
                self._done.wait(SECONDS)
                return
            self.requests.append(self._request(connection))
            connection.sendall(answer)

    def _request(self, connection: socket.socket) -> bytes:
        """The next request with its body; only its head when the script answers before the body."""
        told = b""
        while b"\r\n\r\n" not in told:
            told += connection.recv(65536)
        head, _, body = told.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        while self._whole and lengths and len(body) < int(lengths[0]):
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening
