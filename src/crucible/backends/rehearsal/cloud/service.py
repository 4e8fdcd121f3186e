"""The running cloud: its state folder, its HTTP listener and its main loop."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import parse_qsl, urlsplit

from .clock import Anchor, Clock
from .desk import ConnectionCut, Dispatcher, Keys
from .exchange import Request, Response
from .processes import Machines
from .store import Store
from .world import World

HOST = "127.0.0.1"
MAX_BODY = 1024 * 1024
REQUEST_SECONDS = 30.0
MAX_WAIT = 0.1
"""Between two checks of the machines, in the computer's time."""
ALREADY_RUNNING = 3
"""Exit code if another cloud uses the state folder."""
_PASSED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")


@dataclass(frozen=True)
class Options:
    state: Path
    port: int
    seed: int
    speed: float
    price_seconds: int


class CloudServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    dispatcher: Dispatcher

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not report clients that disconnected in the middle of a request."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = REQUEST_SECONDS
    server: CloudServer

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


def serve(options: Options) -> int:
    """Run until SIGTERM or SIGINT, or until the folder is gone; return the exit code. Machines outlive the cloud."""
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(options.state / "lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"another cloud runs in {options.state}\n")
            return ALREADY_RUNNING
        os.umask(0o077)
        _run(options, lambda: _is_at(options.state / "lock", lock.fileno()))
    return 0


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _run(options: Options, is_there: Callable[[], bool]) -> None:
    store = Store(options.state / "cloud.db")
    world = World(
        store, _clock(store, options.speed), Machines(options.state / "machines"), options.seed,
        options.price_seconds,
    )  # fmt: skip
    keys = _keys(store)
    listener = _listen(store, options.port)
    listener.dispatcher = Dispatcher(world, keys, os.getpid())
    url = f"http://{HOST}:{listener.server_port}"
    world.environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    world.metadata_url = url
    stop = threading.Event()
    _end_on_signal(stop)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    _publish(options.state / "cloud.json", url, keys)
    while is_there() and not stop.wait(min(world.tick(), MAX_WAIT)):
        pass
    listener.server_close()


def _clock(store: Store, speed: float) -> Clock:
    """Return the clock. It has continued while the cloud was down, and runs at the new speed from now on."""
    kept = store.note("anchor")
    clock = Clock(Anchor(**json.loads(kept)) if kept else Anchor(0.0, 0.0, 1.0))
    anchor = clock.run_at(speed)
    with store.transaction():
        store.write_note("anchor", json.dumps(asdict(anchor)))
    return clock


def _keys(store: Store) -> Keys:
    with store.transaction():
        for name in ("key", "admin_key"):
            if store.note(name) is None:
                store.write_note(name, secrets.token_urlsafe(24))
    return Keys(store.note("key") or "", store.note("admin_key") or "")


def _listen(store: Store, port: int) -> CloudServer:
    """Listen on the port, or else on the previous one if it is free: running machines know the metadata URL by it."""
    before = int(store.note("port") or 0)
    try:
        listener = CloudServer((HOST, port or before), Handler)
    except OSError:
        if port or not before:
            raise
        listener = CloudServer((HOST, 0), Handler)
    with store.transaction():
        store.write_note("port", str(listener.server_port))
    return listener


def _end_on_signal(stop: threading.Event) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _publish(path: Path, url: str, keys: Keys) -> None:
    """Write the address and keys atomically, readable only by the owner."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    doc = {"url": url, "pid": os.getpid(), "key": keys.customer, "admin_key": keys.admin}
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(doc, file)
    part.replace(path)
