"""Processes that may open no more files: they refuse or wait, neither spin nor die, and go on when they may again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import psutil
import pytest
from tests.faults.counting_job import SMALL, Counting
from tests.harness import Deployment, View, shell, until
from tests.scale import Record

HELD = 30
"""Connections that wait in vain."""
BUSY = 0.6
"""Of a core, what a server may use while it can do nothing."""
MOST_LINES = 100
"""Lines a second that it may say so with."""


@contextlib.contextmanager
def exhausted(pid: int) -> Iterator[Callable[[], None]]:
    """The process may open nothing more than what it has open now; called again, nor in place of what it closed."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("only Linux lets another process's limits be changed")
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def exhaust() -> None:
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        lowest_free = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))

    exhaust()
    try:
        yield exhaust
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_that_can_open_nothing(crucible: Deployment, tmp_path: Path, record: Record) -> None:
    assert crucible.server is not None
    counting = Counting(crucible, tmp_path / "counting")
    log = crucible.home / "server.log"
    with crucible.client() as known, _strangers(crucible) as strangers:
        known.get("/api/v1/jobs").raise_for_status()
        with exhausted(crucible.server.pid) as exhaust:
            refused = until(lambda: _refused(known, exhaust), 30, "a server that can open nothing")
            assert (refused["status"], refused["code"]) in {(503, "storage"), (503, "trouble")}
            assert "Too many open files" in refused["why"]
            assert refused["fix"]
            strangers(HELD)
            began, before, lines = time.monotonic(), _cpu(crucible.server.pid), _lines(log)
            key = os.urandom(8).hex()
            assert _submit_within(crucible, key, 2.0) is None, "there is no connection to be had"
            counting.goes_on()
            took = time.monotonic() - began
            busy = (_cpu(crucible.server.pid) - before) / took
            assert crucible.server.poll() is None
            assert busy < BUSY
            assert (_lines(log) - lines) / took < MOST_LINES
    job = until(lambda: _submit_within(crucible, key, 10.0), 30, "the server to take jobs again")
    assert crucible.wait(job)["status"] == "completed"
    view, output = counting.let_go()
    assert (view["status"], view["attempt"]) == ("completed", counting.attempt)
    assert counting.left_out(output) == 0
    assert len(crucible.get("/api/v1/jobs")["items"]) == 2, "the one that got no answer is not there twice"
    crucible.nothing_left()
    record("file descriptors exhausted", where="server", busy=round(busy, 2))


def test_a_host_that_can_open_nothing(crucible: Deployment, tmp_path: Path, record: Record) -> None:
    """What runs goes on; what begins waits until its runner can be started."""
    counting = Counting(crucible, tmp_path / "counting")
    (host,) = crucible.hosts()
    with exhausted(host):
        job = crucible.submit(shell("echo ran", resources=SMALL))
        until(lambda: b"Too many open files" in _host_log(crucible), 30, "a runner that cannot begin")
        counting.goes_on()
        assert crucible.hosts() == [host]
    view = crucible.wait(job)
    assert (view["status"], view["attempt"]) == ("completed", 1)
    assert crucible.log(job) == b"ran\n"
    view, output = counting.let_go()
    assert (view["status"], view["attempt"]) == ("completed", counting.attempt)
    assert counting.left_out(output) == 0
    assert crucible.hosts() == [host]
    crucible.nothing_left()
    record("file descriptors exhausted", where="host")


@contextlib.contextmanager
def _strangers(crucible: Deployment) -> Iterator[object]:
    """Makes connections that ask nothing; all are gone at the end."""
    place = urlsplit(crucible.discovery["url"])
    with contextlib.ExitStack() as held:
        yield lambda count: [
            held.enter_context(socket.create_connection((place.hostname, place.port))) for _ in range(count)
        ]


def _refused(client: httpx.Client, exhaust: Callable[[], None]) -> View | None:
    """What is said of an upload. None where there was still something that could be opened in place of another."""
    exhaust()
    code = os.urandom(1024)
    answer = client.put(f"/api/v1/bundles/{hashlib.sha256(code).hexdigest()}", content=code)
    return None if answer.is_success else dict(answer.json())


def _submit_within(crucible: Deployment, key: str, seconds: float) -> str | None:
    spec = shell("true", resources=SMALL)
    try:
        with crucible.client(timeout=seconds) as client:
            answer = client.post("/api/v1/jobs", json=spec, headers={"Idempotency-Key": key})
    except httpx.HTTPError:
        return None
    return str(answer.json()["id"]) if answer.status_code in (200, 201) else None


def _cpu(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n")


def _host_log(crucible: Deployment) -> bytes:
    return b"".join(path.read_bytes() for path in crucible.home.glob("machines/*/host.log"))
