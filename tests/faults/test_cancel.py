"""Cancelling in every phase: the job is cancelled and nothing of it is left running."""

from __future__ import annotations

import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Deployment, View, alive, python, shell, until

# Each of these processes writes down its own pid before it waits to be ended.
FAMILY = """\
import os, sys, time

def note():
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")

def linger():
    note()
    time.sleep(1000)
    os._exit(0)

for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            linger()
        linger()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        linger()
    os._exit(0)
linger()
"""
FAMILY_SIZE = 8


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("shared")) as deployment:
        yield deployment


@pytest.fixture
def crucible(shared: Deployment) -> Iterator[Deployment]:
    """One deployment for all of these tests: each leaves it empty, even when it fails."""
    yield shared
    for view in shared.get("/api/v1/jobs", active="true")["items"]:
        shared.cancel(view["id"])
        shared.wait(view["id"])


def test_queued(crucible: Deployment, tmp_path: Path) -> None:
    first = crucible.submit(_sleeper(tmp_path / "first"))
    second = crucible.submit(_sleeper(tmp_path / "second"))
    assert crucible.job(second)["phase"] == "queued"
    assert crucible.cancel(second)["status"] == "cancelled"
    pid = _pids(tmp_path / "first")[0]
    assert alive(pid)
    assert crucible.cancel(first)["phase"] == "stopping"
    _is_over(crucible, first, [pid])
    assert not (tmp_path / "second").exists()


def test_provisioning(tmp_path: Path) -> None:
    with Deployment(tmp_path) as fresh:
        with fresh.client() as client:
            view = client.post("/api/v1/jobs", json=_sleeper(tmp_path / "pids")).json()
            assert view["phase"] == "provisioning"
            client.post(f"/api/v1/jobs/{view['id']}/cancel").raise_for_status()
        _is_over(fresh, view["id"], [])
        assert not (tmp_path / "pids").exists()
        assert fresh.wait(fresh.submit(shell("true")))["status"] == "completed", "the place is usable"


def test_starting(crucible: Deployment, tmp_path: Path, slow_source: str) -> None:
    job = crucible.submit({**_sleeper(tmp_path / "pids"), "data": [{"name": "big", "source": slow_source}]})
    crucible.phase(job, "starting")
    until(lambda: _said(crucible, job, "downloading big"), 30, "the download")
    crucible.cancel(job)
    _is_over(crucible, job, [])
    assert not (tmp_path / "pids").exists()


def test_running(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit(_sleeper(tmp_path / "pids"))
    pids = _pids(tmp_path / "pids")
    crucible.phase(job, "running")
    crucible.cancel(job)
    _is_over(crucible, job, pids)


def test_stopping(crucible: Deployment, tmp_path: Path) -> None:
    """A second wish changes nothing: the job still has its time to save."""
    goodbye = f"trap 'touch {tmp_path}/told; sleep 1; echo saved; exit 0' TERM"
    job = crucible.submit(shell(f"{goodbye}; echo $$ > {tmp_path}/pids; while :; do sleep 0.1; done", grace_seconds=30))
    pids = _pids(tmp_path / "pids")
    crucible.cancel(job)
    until((tmp_path / "told").exists, 30, "the job to be told")
    assert crucible.cancel(job)["phase"] == "stopping"
    _is_over(crucible, job, pids)
    assert crucible.log(job).endswith(b"saved\n")
    assert [event["type"] for event in crucible.events(job)].count("cancel_requested") == 1
    with crucible.client() as client:
        assert client.post(f"/api/v1/jobs/{job}/cancel").status_code == 200, "it is over already"


def test_saving(crucible: Deployment, tmp_path: Path) -> None:
    """The process has ended and its outputs are on their way: they arrive, and the wish still counts."""
    files = 'for n in range(150): open(os.environ["CRUCIBLE_OUTPUT_DIR"] + f"/{n}", "wb").write(bytes(65536))'
    job = crucible.submit(python(f"import os\n{files}"))
    until(lambda: crucible.job(job)["attempts"][-1:][0]["state"] == "saving", 60, "outputs on their way")
    crucible.cancel(job)
    _is_over(crucible, job, [])
    assert len(crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]) == 150


def test_a_job_that_does_not_listen(crucible: Deployment, tmp_path: Path) -> None:
    command = f"trap '' TERM; echo $$ > {tmp_path}/pids; while :; do sleep 0.1; done"
    job = crucible.submit(shell(command, grace_seconds=1))
    pids = _pids(tmp_path / "pids")
    crucible.cancel(job)
    assert _is_over(crucible, job, pids)["signal"] == 9


def test_children_grandchildren_and_daemons(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit({"command": [sys.executable, "-c", FAMILY, str(tmp_path / "pids")]})
    pids = _pids(tmp_path / "pids", FAMILY_SIZE)
    crucible.cancel(job)
    _is_over(crucible, job, pids)


def test_a_daemon_that_forgot_our_variables(crucible: Deployment, tmp_path: Path) -> None:
    daemon = f"env -i /bin/sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 1000'"
    job = crucible.submit(shell(f"setsid {daemon} & {daemon}"))
    pids = _pids(tmp_path / "pids", 2)
    view = crucible.phase(job, "running")
    crucible.cancel(job)
    if not view["attempts"][0]["facts"]["started"]["limits"].startswith("cgroup"):
        crucible.wait(job)
        pytest.skip("without control groups nothing tells such a process from a stranger's")
    _is_over(crucible, job, pids)


class _Stalls(socketserver.StreamRequestHandler):
    """Promises a file and sends none of it until the test is over."""

    over: threading.Event

    def handle(self) -> None:
        self.request.recv(4096)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not self.over.wait(0.05):
            self.wfile.write(b".")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """The job hung up: that is what we wanted."""


@pytest.fixture
def slow_source() -> Iterator[str]:
    _Stalls.over = threading.Event()
    with _Server(("127.0.0.1", 0), _Stalls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/big"
        _Stalls.over.set()
        server.shutdown()


def _sleeper(pids: Path) -> View:
    return shell(f"echo $$ > {pids}; exec sleep 1000")


def _pids(path: Path, count: int = 1) -> list[int]:
    def look() -> list[int]:
        found = path.read_text().split() if path.exists() else []
        return [int(pid) for pid in found] if len(found) == count else []

    return until(look, 60, f"{count} processes")


def _said(crucible: Deployment, job: str, what: str) -> bool:
    return any(event["data"].get("what") == what for event in crucible.events(job))


def _is_over(crucible: Deployment, job: str, pids: list[int]) -> View:
    view = crucible.wait(job)
    assert (view["status"], view["reason"]["code"]) == ("cancelled", "cancelled")
    assert [pid for pid in pids if alive(pid)] == [], "cancelled means that nothing runs any more"
    crucible.nothing_left()
    return view
