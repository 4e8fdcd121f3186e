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
from crucible.client.transport.address import read_address
from crucible.client.transport.http import Endpoint
from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.wire.files.identity import identity
from crucible.wire.http.client import HttpClient, HttpError, Request
from crucible.wire.process import Process

PROBE_SECONDS = 3.0


@dataclass(frozen=True)
class Discovery:
    """What a server writes to `server.json` when it becomes ready.

    `folder` tells its state folder from a copy; empty if an older server wrote the file.
    """

    url: str
    pid: int
    start_time: str
    version: str
    nonce: str
    folder: str = ""

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start_time)

    @property
    def alive(self) -> bool:
        """Whether its process runs. After a kill, the file names a dead process, or another with the same id."""
        return self.process.alive


def read_discovery(home: Path) -> Discovery | None:
    """Return the content of `server.json`; None if it is missing, invalid, or copied from another state folder."""
    try:
        content = json.loads((home / "server.json").read_text(encoding="utf-8"))
        found = Discovery(
            url=str(content["url"]).rstrip("/"),
            pid=int(content["pid"]),
            start_time=str(content["start_time"]),
            version=str(content["version"]),
            nonce=str(content["nonce"]),
            folder=str(content.get("folder", "")),
        )
        return found if found.folder in ("", identity(home.stat())) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_token(home: Path) -> Secret | None:
    try:
        text = (home / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Secret(text) if text else None


def answers(server: Discovery, seconds: float = PROBE_SECONDS) -> bool:
    """Return whether that run of the server answers. Its process may be alive and suspended."""
    route = routes.LIVE
    try:
        with closing(HttpClient(read_address(server.url))) as http:
            response = http.send(Request(route.method, route.path, seconds, seconds))
            body = json.loads(response.content)
    except (HttpError, BadInput, ValueError):
        return False
    return isinstance(body, dict) and str(body.get("nonce", "")) == server.nonce


def find_server(home: Path) -> Discovery | None:
    """Return the running embedded server, if one answers with the nonce of `server.json`."""
    discovery = read_discovery(home)
    return discovery if discovery is not None and discovery.alive and answers(discovery) else None


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
