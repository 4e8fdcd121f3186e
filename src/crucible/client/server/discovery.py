"""Finds the embedded server: reads `server.json` and checks that the server it names is running."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from crucible.client.api import routes
from crucible.client.api.routes import RawRoute
from crucible.client.transport.address import read_address
from crucible.client.transport.http import Endpoint
from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.wire.http.client import HttpClient, HttpError, Request
from crucible.wire.process import Process

PROBE_SECONDS = 3.0


@dataclass(frozen=True)
class Discovery:
    """What a server writes to `server.json` when it becomes ready."""

    url: str
    pid: int
    start_time: str
    version: str
    nonce: str

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start_time)

    @property
    def alive(self) -> bool:
        """Whether its process runs. After a kill, the file names a dead process, or another with the same id."""
        return self.process.alive


@dataclass(frozen=True)
class ProbeResult:
    """The answer to a probe. `ready` may be false while a server starts."""

    ready: bool
    nonce: str
    version: str


def read_discovery(home: Path) -> Discovery | None:
    """Return the content of `server.json`; None if it is missing or invalid."""
    try:
        content = json.loads((home / "server.json").read_text(encoding="utf-8"))
        return Discovery(
            url=str(content["url"]).rstrip("/"),
            pid=int(content["pid"]),
            start_time=str(content["start_time"]),
            version=str(content["version"]),
            nonce=str(content["nonce"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_token(home: Path) -> Secret | None:
    try:
        text = (home / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Secret(text) if text else None


def probe(url: str, route: RawRoute, seconds: float = PROBE_SECONDS) -> ProbeResult | None:
    """Return the answer of `routes.LIVE` or `routes.READY` at that address; None if no Crucible server answers."""
    try:
        with closing(HttpClient(read_address(url))) as http:
            response = http.send(Request(route.method, route.path, seconds, seconds))
            body = json.loads(response.content)
    except (HttpError, BadInput, ValueError):
        return None
    if not isinstance(body, dict):
        return None
    ready = response.status_code == 200 and body.get("ready", True) is True
    return ProbeResult(ready, str(body.get("nonce", "")), str(body.get("version", "")))


def find_server(home: Path) -> Discovery | None:
    """Return the running embedded server, if one answers with the nonce of `server.json`."""
    discovery = read_discovery(home)
    if discovery is None or not discovery.alive:
        return None
    answer = probe(discovery.url, routes.LIVE)
    return discovery if answer is not None and answer.nonce == discovery.nonce else None


def endpoint_of(home: Path, discovery: Discovery) -> Endpoint:
    return Endpoint(discovery.url, read_token(home), embedded=True)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock for the block if it is free; yields whether it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
