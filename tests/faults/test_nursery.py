"""A forked server is as much a process of its own as one that a new interpreter runs."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.fork_server import Forked
from tests.harness import Deployment, shell

ASKING = 8


def test_it_runs_jobs_is_killed_and_comes_back(crucible: Deployment) -> None:
    first = crucible.server
    assert isinstance(first, Forked)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.01)
    assert [process.pid for process in crucible.servers()] == [first.pid] == [crucible.discovery["pid"]]
    job = crucible.submit(shell("true"))
    assert crucible.wait(job)["status"] == "completed"
    crucible.restart()
    assert first.returncode == -signal.SIGKILL
    assert isinstance(crucible.server, Forked)
    assert crucible.server.pid != first.pid
    assert crucible.job(job)["status"] == "completed"
    crucible.stop()
    assert crucible.server.returncode == 0
    assert crucible.servers() == []


def test_many_may_ask_at_once_how_it_ended(crucible: Deployment) -> None:
    server = crucible.server
    assert isinstance(server, Forked)
    with ThreadPoolExecutor(ASKING) as askers:
        asked = [askers.submit(server.wait, 30) for _ in range(ASKING)]
        server.kill()
        assert {each.result() for each in asked} == {-signal.SIGKILL}
    crucible.start()
    assert crucible.wait(crucible.submit(shell("true")))["status"] == "completed"


def test_its_variables_and_its_output_are_its_own(tmp_path: Path) -> None:
    refused = Deployment(tmp_path / "refused", {"CRUCIBLE_BUNDLE_LIMIT": "no size"})
    with pytest.raises(AssertionError, match="no size"):
        refused.start()
    with Deployment(tmp_path / "armed", {"CRUCIBLE_CRASHPOINT": "submit.before_commit"}) as armed:
        with Deployment(tmp_path / "free") as free:
            assert free.wait(free.submit(shell("true")))["status"] == "completed"
            assert "no size" not in (free.home / "server.log").read_text()
        with pytest.raises(httpx.HTTPError):
            armed.submit(shell("true"))
        assert armed.server is not None
        assert armed.server.wait(30) == -signal.SIGKILL


def test_what_an_interpreter_reads_first_needs_a_new_one(tmp_path: Path) -> None:
    with Deployment(tmp_path, {"PYTHONPATH": str(tmp_path)}) as deployment:
        assert isinstance(deployment.server, subprocess.Popen)
