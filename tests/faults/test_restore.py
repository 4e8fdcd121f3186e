"""A backup, more work, a restore: what the backup did not know of lives, and what it knew of goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.harness import Deployment, shell, until

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(300)]

SMALL = {"resources": {"cpus": 0.5, "memory_bytes": 256 * 1024**2}}


def db(deployment: Deployment, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "crucible.app", "db", *arguments]
    done = subprocess.run(command, env=deployment.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def waiting(name: str, folder: Path) -> dict[str, Any]:
    """A job that runs until it is told to go on, then leaves a mark."""
    script = f"echo begun; while [ ! -e {folder}/{name}.go ]; do sleep 0.1; done; echo over; touch {folder}/{name}.done"
    return shell(script, **SMALL)


def test_nothing_that_runs_is_lost_to_a_restore(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        known = deployment.submit(waiting("known", tmp_path))
        deployment.phase(known, "running", seconds=60)
        assert deployment.cli("db", "backup", str(tmp_path / "backup.zip")).returncode == 0
        unknown = deployment.submit(waiting("unknown", tmp_path))
        deployment.phase(unknown, "running", seconds=60)
        deployment.stop()

        db(deployment, "restore", str(tmp_path / "backup.zip"))
        deployment.start(seconds=60)
        with pytest.raises(httpx.HTTPStatusError):
            deployment.job(unknown)
        held = deployment.submit(shell("true", **SMALL))
        until(lambda: "restored" in (deployment.job(held)["waiting"] or ""), 30, "the new job to say why it waits")

        (tmp_path / "known.go").touch()
        view = deployment.wait(known, 90)
        assert (view["status"], view["attempt"]) == ("completed", 1), "it was not run twice"
        assert deployment.log(known) == b"begun\nover\n"
        assert not (tmp_path / "unknown.done").exists()
        (tmp_path / "unknown.go").touch()
        until((tmp_path / "unknown.done").exists, 60, "the job that nobody knows to do its work to its end")
        assert deployment.job(held)["status"] == "queued"

        deployment.stop()
        assert db(deployment, "confirm")["confirmed"] is True
        deployment.start(seconds=60)
        assert deployment.wait(held, 90)["status"] == "completed"
