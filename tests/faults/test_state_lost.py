"""A state folder that is removed, emptied or copied under real processes: said, and nothing is lost in silence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.harness import Deployment, alive, shell, until

ENDS = 15.0
"""Seconds that a server may take to notice and end, on a busy machine."""


@pytest.fixture
def copy(crucible: Deployment, tmp_path: Path) -> Iterator[Deployment]:
    """Another deployment, whose folder a test copies."""
    copied = Deployment(tmp_path / "copy")
    copied.home.parent.mkdir()
    yield copied
    copied.close()


def test_the_folder_is_removed_under_a_server_with_a_job(crucible: Deployment) -> None:
    job = crucible.submit(shell("sleep 600"))
    crucible.phase(job, "running")
    assert crucible.server is not None
    processes = crucible.processes()
    assert len(processes) >= 2, "a host and a runner"
    with crucible.client() as client:
        shutil.rmtree(crucible.home)
        answers = list(_submissions(client))
    assert set(answers) <= {503}, "none if it has ended already"
    assert crucible.server.wait(ENDS) == 1
    until(lambda: not any(alive(process.pid) for process in processes), 30, "host, runner and program to end")
    assert not crucible.home.exists()


def test_the_lock_file_is_removed_under_a_server(crucible: Deployment) -> None:
    """No second server starts meanwhile, and this one ends; the next goes on with the job."""
    job = crucible.submit(shell("sleep 600"))
    crucible.phase(job, "running")
    first = crucible.discovery["pid"]
    (crucible.home / "server.lock").unlink()
    assert crucible.server is not None
    assert crucible.server.wait(ENDS) == 1
    assert "server.lock was removed" in (crucible.home / "server.log").read_text()
    assert crucible.cli("status").returncode == 0
    assert crucible.discovery["pid"] != first
    assert crucible.job(job)["phase"] == "running"


def test_another_process_cannot_open_the_database_of_a_running_server(crucible: Deployment, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crucible.app", "db", "backup", str(tmp_path / "backup")]
    refused = subprocess.run(command, env=crucible.env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "crucible db backup" in refused.stdout + refused.stderr
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("emptied", [True, False])
def test_the_database_is_emptied_while_no_server_runs(crucible: Deployment, tmp_path: Path, emptied: bool) -> None:
    job = crucible.submit(shell("echo hello"))
    crucible.wait(job)
    backup = tmp_path / "backup"
    assert crucible.cli("db", "backup", str(backup)).returncode == 0
    crucible.stop()
    for path in crucible.home.glob("crucible.db*"):
        path.unlink()
    if emptied:
        (crucible.home / "crucible.db").touch()
    refused = crucible.cli("jobs")
    assert refused.returncode == 1
    assert "missing or empty" in refused.stderr
    assert "crucible db restore" in refused.stderr
    assert crucible.cli("db", "restore", str(backup), "--yes").returncode == 0
    assert crucible.cli("jobs").returncode == 0
    assert crucible.job(job)["status"] == "completed"


def test_a_copy_of_the_folder_does_not_touch_the_original(crucible: Deployment, copy: Deployment) -> None:
    job = crucible.submit(shell("sleep 600"))
    crucible.phase(job, "running")
    shutil.copytree(crucible.home, copy.home, ignore=shutil.ignore_patterns("*.sock"))
    assert "No server was running" in copy.cli("down", "--yes").stderr
    refused = copy.cli("status")
    assert refused.returncode == 1
    assert "copy of a state folder" in refused.stderr
    assert crucible.job(job)["phase"] == "running"
    assert crucible.job(job)["attempt"] == 1


def test_a_suspended_server_is_told_and_can_be_ended(crucible: Deployment) -> None:
    crucible.env |= {"CRUCIBLE_START_SECONDS": "1"}
    pid = crucible.discovery["pid"]
    os.kill(pid, signal.SIGSTOP)
    answer = crucible.cli("jobs")
    assert answer.returncode == 9
    assert f"process {pid}" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert crucible.cli("doctor").returncode == 1
    assert "is stopped" in crucible.cli("down", "--yes").stderr
    assert crucible.server is not None
    crucible.server.wait(ENDS)


def _submissions(client: httpx.Client) -> Iterator[int]:
    """Submit until the server is gone; yield the statuses."""
    for _ in range(10_000):
        try:
            yield client.post("/api/v1/jobs", json=shell("true")).status_code
        except httpx.HTTPError:
            return
    raise AssertionError("the server answers on")
