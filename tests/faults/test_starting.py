"""Starting under bad circumstances: all at once, half started, left-overs, no port, no room."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest
from tests.harness import Deployment, View, shell, until

pytestmark = pytest.mark.usefixtures("new_interpreters")

AT_ONCE = 8
ROOM = 24 * 1024 * 1024


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Deployment]:
    """Not started; nothing of it is there yet."""
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.close()


def test_of_many_starters_one_starts(fresh: Deployment) -> None:
    commands = [_command(fresh, "status") for _ in range(AT_ONCE)]
    results = [command.communicate(timeout=120) for command in commands]
    assert [command.returncode for command in commands] == [0] * AT_ONCE, results
    assert [process.pid for process in fresh.servers()] == [fresh.discovery["pid"]]


def test_a_server_killed_before_it_was_ready_is_replaced(fresh: Deployment) -> None:
    fresh.home.mkdir()
    serve = [sys.executable, "-m", "crucible.app", "serve", "--embedded", "--nonce", "first"]
    first = subprocess.Popen(serve, env=fresh.env, stderr=subprocess.DEVNULL)
    _kill_half_started(fresh)
    first.wait(10)
    answer = fresh.cli("status")
    assert answer.returncode == 0, answer.stderr
    (server,) = fresh.servers()
    assert server.pid == fresh.discovery["pid"] != first.pid


def test_a_command_whose_server_is_killed_starts_another(fresh: Deployment) -> None:
    command = _command(fresh, "status")
    killed = _kill_half_started(fresh)
    _, told = command.communicate(timeout=120)
    assert command.returncode == 0, told
    (server,) = fresh.servers()
    assert server.pid == fresh.discovery["pid"] != killed


def test_what_a_killed_server_left_does_not_matter(crucible: Deployment) -> None:
    crucible.kill()
    left = crucible.discovery
    assert crucible.cli("status").returncode == 0
    assert crucible.discovery["nonce"] != left["nonce"]


def test_a_pid_used_again_is_not_taken_for_the_server(crucible: Deployment) -> None:
    """server.json names a living process that is no server, and an address where nobody is."""
    crucible.kill()
    with open(f"/proc/{os.getpid()}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    with _taken_port() as port:
        url = f"http://127.0.0.1:{port}"
        lie = {**crucible.discovery, "pid": os.getpid(), "start_time": started, "url": url}
    (crucible.home / "server.json").write_text(json.dumps(lie))
    assert crucible.cli("status").returncode == 0
    assert crucible.discovery["pid"] != os.getpid()


def test_a_port_that_was_asked_for_is_taken(fresh: Deployment) -> None:
    with _taken_port() as port:
        serve = [sys.executable, "-m", "crucible.app", "serve", "--port", str(port)]
        answer = subprocess.run(serve, env=fresh.env, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    error = json.loads(answer.stderr.splitlines()[-1])["error"]
    assert error["code"] == "port_in_use"
    assert str(port) in error["what"]
    assert "--port" in error["fix"]


def test_the_port_of_the_last_run_is_taken(crucible: Deployment) -> None:
    port = int(crucible.discovery["url"].rpartition(":")[2])
    crucible.kill()
    with _taken_port(port):
        assert crucible.cli("status").returncode == 0
    assert not crucible.discovery["url"].endswith(f":{port}")


def test_the_database_of_a_newer_version(crucible: Deployment) -> None:
    crucible.kill()
    with contextlib.closing(sqlite3.connect(crucible.home / "crucible.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    answer = crucible.cli("status")
    assert answer.returncode == 1
    assert "newer Crucible" in answer.stderr
    assert "Upgrade crucible-ml" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert crucible.servers() == []


def test_a_wrong_token(crucible: Deployment) -> None:
    url = crucible.discovery["url"]
    headers = {"Authorization": "Bearer wrong"}
    answer = httpx.get(f"{url}/api/v1/jobs", headers=headers, verify=False, trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["fix"]
    crucible.env |= {"CRUCIBLE_SERVER": url, "CRUCIBLE_TOKEN": "wrong"}
    told = crucible.cli("status")
    assert told.returncode == 4
    assert "Traceback" not in told.stderr


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    with Deployment(small_disk) as crucible:
        go = tmp_path / "go"
        first = crucible.submit(shell(f"while [ ! -e {go} ]; do sleep 0.1; done"))
        crucible.phase(first, "running")
        filler = small_disk / "filler"
        _fill(filler)
        accepted, problem, key = _submit_until_refused(crucible)
        assert problem["code"] == "disk_full"
        assert problem["fix"]
        known = [view["id"] for view in crucible.get("/api/v1/jobs", limit=500)["items"]]
        assert sorted(known) == sorted([first, *accepted]), "what was refused left no trace"
        filler.unlink()
        refused = until(lambda: _try_submit(crucible, key), 30, "the same key to be accepted")
        go.touch()
        for job in [first, *accepted, refused]:
            view = crucible.wait(job, 60)
            assert (view["status"], view["attempt"]) == ("completed", 1), view
        crucible.nothing_left()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    asked = [mount, "-t", "tmpfs", "-o", f"size={ROOM}", "crucible-test", str(place)]
    made = subprocess.run(asked, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(path: Path) -> None:
    """Takes all the room there is, to the last byte."""
    with open(path, "wb", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def _submit_until_refused(crucible: Deployment) -> tuple[list[str], View, str]:
    """The write-ahead log may have some room of its own; when that is used up too, a submit is refused."""
    accepted: list[str] = []
    for _ in range(200):
        key = uuid.uuid4().hex
        answer = _submit(crucible, key)
        if answer.status_code == 507:
            return accepted, answer.json(), key
        assert answer.status_code == 201, answer.text
        accepted.append(answer.json()["id"])
    raise AssertionError("the disk does not get full")


def _try_submit(crucible: Deployment, key: str) -> str | None:
    answer = _submit(crucible, key)
    return str(answer.json()["id"]) if answer.status_code == 201 else None


def _submit(crucible: Deployment, key: str) -> Any:
    with crucible.client() as client:
        return client.post("/api/v1/jobs", json=shell("true"), headers={"Idempotency-Key": key})


def _command(crucible: Deployment, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "crucible", *arguments], env=crucible.env, stdout=pipe, stderr=pipe, text=True
    )


def _kill_half_started(crucible: Deployment) -> int:
    """Kills the server once it holds the state folder and before anybody can find it."""
    until(lambda: _is_held(crucible.home / "server.lock"), 60, "a server that starts")
    (server,) = crucible.servers()
    server.send_signal(signal.SIGKILL)
    until(lambda: not psutil.pid_exists(server.pid) or server.status() == psutil.STATUS_ZOMBIE, 10, "its end")
    assert not (crucible.home / "server.json").exists(), "it was not ready yet"
    return int(server.pid)


def _is_held(path: Path) -> bool:
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _taken_port(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as taken:
        yield int(taken.getsockname()[1])
