"""Hosts, runners and users' processes are killed: what can goes on, the rest is tried again, never twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.harness import Deployment, View, alive, python, until

# Holds a lock as long as it lives, with a child that lives as long; runs until it may go, or tries again.
WORKER = """\
import fcntl, os, sys, time

folder = sys.argv[1]
attempt = os.environ["CRUCIBLE_ATTEMPT"]
lock = open(f"{folder}/lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(f"{folder}/two-at-once", "w").close()
child = os.fork()
with open(f"{folder}/{attempt}-{'parent' if child else 'child'}", "w") as file:
    file.write(f"{os.getpid()}\\n")
print("begun", attempt, flush=True) if child else None
while not os.path.exists(f"{folder}/go-{attempt}"):
    time.sleep(0.05)
if child:
    os.waitpid(child, 0)
    print("over", attempt, flush=True)
"""


class Work:
    """A job that shows who runs it, and ends attempt by attempt when it is told."""

    def __init__(self, crucible: Deployment, folder: Path) -> None:
        self._folder = folder
        self._crucible = crucible
        self.job = crucible.submit({"command": ["{python}", "-c", WORKER, str(folder)]})

    def processes(self, attempt: int) -> list[int]:
        """Pids of the attempt's two processes, once both run."""
        return [self._pid(f"{attempt}-{who}") for who in ("parent", "child")]

    def let_go(self, attempt: int) -> View:
        (self._folder / f"go-{attempt}").touch()
        view = self._crucible.wait(self.job)
        assert not (self._folder / "two-at-once").exists()
        self._crucible.nothing_left()
        return view

    def _pid(self, name: str) -> int:
        path = self._folder / name
        return int(until(lambda: path.read_text().strip() if path.exists() else None, 60, name))


def test_a_killed_host_comes_back_and_finds_its_jobs(crucible: Deployment, tmp_path: Path) -> None:
    work = Work(crucible, tmp_path)
    pids = work.processes(1)
    crucible.phase(work.job, "running")
    (before,) = crucible.hosts()
    os.kill(before, signal.SIGKILL)
    until(lambda: [pid for pid in crucible.hosts() if pid != before], 60, "another host")
    assert all(map(alive, pids)), "the job did not notice"
    view = work.let_go(1)
    assert (view["status"], view["attempt"]) == ("completed", 1)
    assert view["attempts"][0]["facts"]["started"]["pid"] == pids[0]
    assert crucible.log(work.job) == b"begun 1\nover 1\n"
    assert crucible.wait(crucible.submit(python("pass")))["status"] == "completed", "the place is usable"


@pytest.mark.parametrize("host_too", [False, True], ids=["runner", "runner and host"])
def test_a_killed_runner_costs_an_attempt(crucible: Deployment, tmp_path: Path, host_too: bool) -> None:
    work = Work(crucible, tmp_path)
    pids = work.processes(1)
    crucible.phase(work.job, "running")
    # The host first: alive for an instant longer it would already begin to recover the runner.
    victims = [*(crucible.hosts() if host_too else []), _runner(crucible)]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    again = work.processes(2)
    assert not any(map(alive, pids)), "the first attempt was ended before the second began"
    assert all(map(alive, again))
    view = work.let_go(2)
    first, second = view["attempts"]
    assert view["status"] == "completed"
    assert (first["reason"], second["reason"]) == ("runner_lost", "completed")
    assert crucible.log(work.job, attempt=1) == b"begun 1\n"
    assert crucible.log(work.job, attempt=2) == b"begun 2\nover 2\n"


def test_runner_host_and_server_killed_at_once(crucible: Deployment, tmp_path: Path) -> None:
    work = Work(crucible, tmp_path)
    pids = work.processes(1)
    crucible.phase(work.job, "running")
    victims = [*crucible.hosts(), _runner(crucible)]
    crucible.kill()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    crucible.start()
    work.processes(2)
    assert not any(map(alive, pids))
    view = work.let_go(2)
    assert [attempt["reason"] for attempt in view["attempts"]] == ["runner_lost", "completed"]


def test_a_killed_process_is_the_users(crucible: Deployment, tmp_path: Path) -> None:
    work = Work(crucible, tmp_path)
    parent, child = work.processes(1)
    os.kill(parent, signal.SIGKILL)
    view = crucible.wait(work.job)
    assert (view["status"], view["signal"], view["exit_code"]) == ("failed", 9, None)
    assert view["reason"]["code"] == "killed"
    assert not alive(child)
    crucible.nothing_left()


def test_a_process_killed_for_its_memory_is_told_apart(crucible: Deployment) -> None:
    job = crucible.submit(python("held = b'x' * (1 << 30)", resources={"memory_bytes": 128 * 1024**2}))
    view = crucible.wait(job)
    assert view["status"] == "failed"
    if not view["attempts"][0]["facts"]["started"]["limits"].startswith("cgroup"):
        pytest.skip("without control groups the kernel does not say that it was for memory")
    assert view["reason"]["code"] == "out_of_memory"


def _runner(crucible: Deployment) -> int:
    (path,) = crucible.home.glob("machines/*/attempts/*/runner.json")
    return int(json.loads(path.read_bytes())["pid"])
