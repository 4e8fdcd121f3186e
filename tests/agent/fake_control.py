"""A small agents' listener on the loopback with the behaviour of the real one, and its bad days."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from crucible.wire.documents.desired import Assignment, Desired, encode_desired
from crucible.wire.documents.messages import BadBatch, Message, MessageKind, decode_batch, derive_secret
from crucible.wire.process import start_time

KEY = b"a key of the deployment"


@dataclass
class Attempt:
    """What the control plane knows of one attempt."""

    messages: list[Message] = field(default_factory=list)
    logs: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    tails: list[tuple[int, bytes]] = field(default_factory=list)
    stop: bool = False
    gone: bool = False
    checkpoint: int = 0
    terms: dict[str, object] = field(default_factory=dict)

    def of(self, kind: MessageKind) -> list[Message]:
        return [message for message in self.messages if message.kind is kind]

    def log(self) -> bytes:
        """The output as announced; fails unless it is in one piece."""
        data = b""
        for message in self.of(MessageKind.LOG):
            start, piece = self.logs[int(str(message.data["n"]))]
            assert start == message.data["start"] == len(data)
            assert message.data["end"] == start + len(piece)
            assert message.data["lines"] == piece.count(b"\n")
            assert message.data["sha256"] == hashlib.sha256(piece).hexdigest()
            data += piece
        return data

    def points(self, name: str) -> list[list[object]]:
        found = [message.data["series"] for message in self.of(MessageKind.POINTS)]
        return [point for series in found if isinstance(series, dict) for point in series.get(name, [])]


class FakeControl:
    """`url_file` is rewritten at each start, as an embedded server does; `fault` may answer instead."""

    def __init__(self, folder: Path, machine: str = "m1") -> None:
        self.machine = machine
        self.nonce = "nonce"
        self.url_file = folder / "agents.url"
        self.attempts: dict[str, Attempt] = {}
        self.bundles: dict[str, bytes] = {}
        self.checkpoints: dict[str, bytes] = {}
        self.secrets: dict[str, str] = {}
        self.claims: list[str] = []
        self.devices: list[str] = []
        self.unwanted = False
        self.lease_seconds: float | None = None
        self.ends_in: float | None = None
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | None] = lambda method, path: None
        self.cut_downloads_after: int | None = None
        self.changed = threading.Condition()
        self._desired = Desired(machine, 1)
        self._server: _Server | None = None
        self.start()

    # The listener

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.control = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url_file.write_text(self.url)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def down(self) -> None:
        """Gone as if killed: connections break in the middle of whatever they were doing."""
        if self._server is not None:
            self._server.shutdown()
            self._server.break_connections()
            self._server.server_close()
        self._server = None

    # What is wanted

    def secret(self, attempt: str) -> str:
        return derive_secret(KEY, "attempt", attempt).decode()

    def assign(self, *assignments: Assignment) -> None:
        with self.changed:
            for assignment in assignments:
                self.attempts.setdefault(assignment.attempt, Attempt())
            self._set(self._desired.assignments + assignments)

    def unassign(self, attempt: str) -> None:
        with self.changed:
            self._set(tuple(a for a in self._desired.assignments if a.attempt != attempt))

    def release(self) -> None:
        with self.changed:
            self._set((), release=True)

    def stop(self, attempt: str) -> None:
        with self.changed:
            self.attempts[attempt].stop = True
            self.changed.notify_all()

    def ask_checkpoint(self, attempt: str, **terms: object) -> None:
        """`terms` are told along with it: lease_seconds, ends_in."""
        with self.changed:
            self.attempts[attempt].checkpoint += 1
            self.attempts[attempt].terms = terms
            self.changed.notify_all()

    def forget(self, attempt: str) -> None:
        with self.changed:
            self.attempts[attempt].gone = True
            self.changed.notify_all()

    def _set(self, assignments: tuple[Assignment, ...], release: bool = False) -> None:
        version = self._desired.version + 1
        self._desired = Desired(self.machine, version, assignments, self.lease_seconds, self.ends_in, release)
        self.changed.notify_all()

    # Waiting, for tests

    def wait(self, what: Callable[[], bool], seconds: float = 20.0) -> None:
        with self.changed:
            assert self.changed.wait_for(what, seconds), f"it did not come in time: {self.attempts}"

    def wait_for(self, attempt: str, kind: MessageKind, seconds: float = 20.0) -> Message:
        self.wait(lambda: bool(self.attempts[attempt].of(kind)), seconds)
        return self.attempts[attempt].of(kind)[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    control: FakeControl

    def __init__(self, *args: object) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*args)  # type: ignore[arg-type]

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.open.add(connection)
        return connection, address

    def break_connections(self) -> None:
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break here all the time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def _route(self, method: str) -> None:
        control = self.server.control
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with control.changed:
            control.requests.append((method, url.path))
            if "X-Crucible-Devices" in self.headers:
                control.devices.append(self.headers["X-Crucible-Devices"])
            control.changed.notify_all()
        fault = control.fault(method, url.path)
        if fault is not None:
            return self._answer(fault, {"detail": "a bad day"})
        parts = [unquote(part) for part in url.path.split("/")[3:]]
        if parts[0] == "claim":
            return self._claim()
        if parts[0] == "machines":
            return self._machine_desired()
        if parts[0] == "bundles":
            return self._bundle(parts[1])
        return self._attempt(method, parts[1], int(parts[2]), parts[3], parts[4:])

    def _answer(self, status: int, body: dict[str, object] | bytes | None = None, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _claim(self) -> None:
        control, asked = self.server.control, json.loads(self.body)
        if control.unwanted:
            return self._answer(410, {"detail": "not wanted"})
        if asked["nonce"] != control.nonce:
            return self._answer(401, {"detail": "wrong nonce"})
        if control.claims and control.claims[0] != asked["native_id"]:
            return self._answer(409, {"detail": "claimed by another"})
        control.claims.append(asked["native_id"])
        return self._answer(200, {"secret": derive_secret(KEY, "machine", asked["machine"]).decode()})

    def _machine_desired(self) -> None:
        control = self.server.control
        if self.headers.get("Authorization") != f"Bearer {derive_secret(KEY, 'machine', control.machine).decode()}":
            return self._answer(401, {"detail": "wrong secret"})
        known = int(self.query["version"])
        with control.changed:
            control.changed.wait_for(
                lambda: control.unwanted or control._desired.version != known or control._server is not self.server,
                float(self.query["wait"]),
            )
            if control.unwanted:
                return self._answer(410, {"detail": "not wanted"})
            if control._desired.version == known:
                return self._answer(304)
            return self._answer(200, encode_desired(control._desired))

    def _bundle(self, sha256: str) -> None:
        control = self.server.control
        return self._download(control.bundles.get(sha256))

    def _download(self, data: bytes | None) -> None:
        control = self.server.control
        if data is None:
            return self._answer(404, {"detail": "there is none"})
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        piece = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        if control.cut_downloads_after is not None:
            piece = piece[: control.cut_downloads_after]
            self.close_connection = True
        self.wfile.write(piece)
        return None

    def _attempt(self, method: str, name: str, rank: int, what: str, rest: list[str]) -> None:
        control = self.server.control
        if self.headers.get("Authorization") != f"Bearer {control.secret(name)}":
            return self._answer(401, {"detail": "wrong secret"})
        attempt = control.attempts.get(name)
        if attempt is None or attempt.gone:
            return self._answer(410, {"detail": "settled"})
        if what == "desired":
            return self._attempt_desired(attempt)
        if (method, what) == ("GET", "secrets"):
            return self._answer(200, {"secrets": control.secrets})
        if (method, what) == ("GET", "checkpoints"):
            return self._download(control.checkpoints.get(rest[0]))
        with control.changed:
            self._store(attempt, name, what, rest)
            control.changed.notify_all()
        return None

    def _attempt_desired(self, attempt: Attempt) -> None:
        control = self.server.control
        known = (self.query["stop"] == "1", int(self.query["checkpoint"]))
        with control.changed:
            control.changed.wait_for(
                lambda: (
                    attempt.gone or (attempt.stop, attempt.checkpoint) != known or control._server is not self.server
                ),
                float(self.query["wait"]),
            )
        if attempt.gone:
            return self._answer(410, {"detail": "settled"})
        if (attempt.stop, attempt.checkpoint) == known:
            return self._answer(304)
        wish = {"stop": attempt.stop, "checkpoint": attempt.checkpoint, "settled": False}
        return self._answer(200, {**wish, "something": "new", **attempt.terms})

    def _store(self, attempt: Attempt, name: str, what: str, rest: list[str]) -> None:
        if what == "messages":
            return self._messages(attempt, name)
        if what == "tail":
            attempt.tails.append((int(self.query["start"]), self.body))
            return self._answer(204)
        if hashlib.sha256(self.body).hexdigest() != self.headers["X-Content-SHA256"]:
            return self._answer(422, {"detail": "damaged"})
        if what == "logs":
            attempt.logs[int(rest[0])] = (int(self.query["start"]), self.body)
            assert int(self.query["lines"]) == self.body.count(b"\n")
        elif what == "checkpoints":
            self.server.control.checkpoints[rest[0]] = self.body
        else:
            attempt.artifacts["/".join(rest)] = self.body
        return self._answer(204)

    def _messages(self, attempt: Attempt, name: str) -> None:
        try:
            batch = decode_batch(self.body, self.server.control.secret(name).encode())
        except BadBatch as error:
            return self._answer(400, {"detail": str(error)})
        acked = len(attempt.messages)
        if batch.messages[0].n > acked + 1:
            return self._answer(409, {"acked": acked})
        attempt.messages += [message for message in batch.messages if message.n > acked]
        assert [message.n for message in attempt.messages] == list(range(1, len(attempt.messages) + 1))
        return self._answer(200, {"acked": len(attempt.messages)})


def is_running(pid: object) -> bool:
    """A zombie that nobody has collected yet does not run."""
    return start_time(int(str(pid))) is not None


def poll(what: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something outside this process."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
