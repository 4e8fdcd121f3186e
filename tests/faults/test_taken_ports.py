"""Another program takes the agents' port of a server that was killed: it hears no secret, and no agent at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import SMALL, rehearsed
from tests.harness import shell, until

LONG = 120.0
LISTENS = 12.0
"""Seconds: agents try again after five at most (agent/link/backoff.py)."""
DENIED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class Thief:
    """Answers on a port as no server would, and keeps all that it hears."""

    def __init__(self, port: int) -> None:
        self.heard: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5.0)
                self.heard.append(connection.recv(65536))
                connection.sendall(DENIED)


@contextmanager
def taken(port: int) -> Iterator[Thief]:
    thief = Thief(port)
    try:
        yield thief
    finally:
        thief.close()


@pytest.mark.parametrize("backend", ["local", "rehearsal"])
def test_who_takes_a_dead_servers_agents_port_hears_nothing(tmp_path: Path, backend: str) -> None:
    program = f"echo begun; until test -e '{tmp_path}/gate'; do echo more; sleep 0.2; done; echo over"
    with rehearsed(tmp_path) as world:
        crucible = world.crucible
        crucible.start()
        job = crucible.submit(shell(program, backend=backend, resources=SMALL))
        until(lambda: crucible.log(job), LONG, "the first line")
        port = _agents_port(crucible.home)
        crucible.kill()
        with taken(port) as thief:
            end = time.monotonic() + LISTENS
            until(lambda: time.monotonic() > end, LONG)
            crucible.start()
            assert _agents_port(crucible.home) != port
            (tmp_path / "gate").touch()
            view = crucible.wait(job, LONG)
            assert (view["status"], view["attempt"]) == ("completed", 1), view["reason"]
            assert thief.heard == []
        assert crucible.log(job).endswith(b"over\n")


def _agents_port(home: Path) -> int:
    return int(json.loads((home / "ports.json").read_text())["agents"])
