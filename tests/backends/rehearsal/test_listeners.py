"""Test that the cloud listens where no other user of the computer can take its place."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import psutil
import pytest
from tests.backends.rehearsal.place import AT_ONCE, Cloud, get

from crucible.backends.rehearsal.connection import Connection, NotSent


def socket_of(cloud: Cloud) -> Path:
    return Path(unquote(cloud.address.url.removeprefix("unix:")))


@contextmanager
def cloud_in(state: Path) -> Iterator[Cloud]:
    cloud = Cloud(state)
    cloud.faults(**AT_ONCE)
    try:
        yield cloud
    finally:
        cloud.clean()


def test_it_has_no_port(own_cloud: Cloud) -> None:
    process = psutil.Process(own_cloud.address.pid)
    assert process.net_connections("inet") == []
    assert socket_of(own_cloud) == own_cloud.state / "cloud.sock"
    assert socket_of(own_cloud).stat().st_mode & 0o077 == 0


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    with cloud_in(tmp_path / ("long" * 30)) as cloud:
        path = socket_of(cloud)
        assert not path.is_relative_to(tmp_path)
        assert path.parent.stat().st_mode & 0o077 == 0
        cloud.kill9()
        assert socket_of_restarted(cloud) == path
    assert not path.parent.exists()


def socket_of_restarted(cloud: Cloud) -> Path:
    cloud.restart()
    return socket_of(cloud)


def test_a_folder_that_is_open_to_others(tmp_path: Path) -> None:
    state = tmp_path / "cloud"
    state.mkdir(mode=0o755)
    with cloud_in(state) as cloud:
        assert socket_of(cloud).parent.stat().st_mode & 0o077 == 0
        assert cloud.census() == {}


def test_a_port_that_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cloud = Cloud(tmp_path / "cloud", port=port)
    try:
        assert cloud.address.url.startswith("unix:")
        assert get(f"http://127.0.0.1:{port}", "/health").status_code == 200
    finally:
        cloud.clean()


class Port:
    """A program at a port of this computer, which keeps what it receives."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self.heard.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.close()


def state_of_0_1_0(folder: Path, url: str) -> Path:
    (folder / "lock").touch()
    address = {"url": url, "pid": os.getpid(), "key": "the-key", "admin_key": "the-admin-key"}
    (folder / "cloud.json").write_text(json.dumps(address))
    return folder


def test_a_cloud_of_version_0_1_0_is_called_at_its_port(tmp_path: Path, port: Port) -> None:
    state = state_of_0_1_0(tmp_path, port.url)
    with open(state / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Connection(state).call("GET", "/v1/types") == {}
    assert b"Bearer the-key" in port.heard[0]


def test_who_takes_the_port_of_one_that_has_ended_gets_no_key(tmp_path: Path, port: Port) -> None:
    state = state_of_0_1_0(tmp_path, port.url)
    with pytest.raises(NotSent):
        Connection(state).call("GET", "/v1/types")
    with cloud_in(state) as cloud:
        assert cloud.address.url.startswith("unix:")
    assert port.heard == []


def test_a_folder_of_the_socket_that_is_another_users_is_refused(tmp_path: Path) -> None:
    """The client checks it before each call: a socket says nothing about who bound it."""
    with cloud_in(tmp_path / "cloud") as cloud:
        cloud.state.chmod(0o755)
        with pytest.raises(NotSent, match="open to other users"):
            cloud.call("GET", "/v1/types")
        cloud.state.chmod(0o700)
