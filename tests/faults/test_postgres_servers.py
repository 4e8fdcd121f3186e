"""Several servers on one PostgreSQL database: what one takes all show, and who does not belong is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults.fleet import fleet
from tests.faults.load import SMALL, Long
from tests.harness import Deployment, shell, until

TAKEOVER_SECONDS = 30.0


def test_what_one_takes_the_others_show_and_a_stopped_one_hands_over(tmp_path: Path) -> None:
    with fleet(tmp_path, 2) as two:
        first, second = two.servers
        job = second.submit(shell("echo hello", resources=SMALL))
        assert first.wait(job)["status"] == "completed"
        assert first.log(job) == second.log(job) == b"hello\n"
        assert [e["n"] for e in first.events(job)] == [e["n"] for e in second.events(job)]
        long = Long(first, tmp_path / "long")
        second.cancel(long.job)
        assert first.wait(long.job)["status"] == "cancelled"
        holder = until(two.holder, 30, "a server on duty")
        (other,) = [one for one in two.living if one is not holder]
        holder.stop()
        assert until(two.holder, TAKEOVER_SECONDS * 2, "the other to take over") is other
        again = other.submit(shell("echo again", resources=SMALL))
        assert other.wait(again, 90)["status"] == "completed"


def test_a_backend_connected_at_one_is_used_and_dropped_by_the_others(tmp_path: Path) -> None:
    with fleet(tmp_path, 2) as two:
        first, second = two.servers
        state = {"settings": {"state": str(tmp_path / "cloud")}}
        assert _post(first, "connect", state)["connected"]
        until(lambda: "rehearsal" in _connected(second), 20, "the other server to connect")
        job = second.submit(shell("echo hello", backend="rehearsal", resources=SMALL))
        assert second.wait(job, 90)["status"] == "completed"
        _post(second, "disconnect", {})
        until(lambda: _connected(first) == _connected(second) == ["local"], 90, "both to disconnect")
        assert first.wait(first.submit(shell("echo still here", resources=SMALL)))["status"] == "completed"


def _post(server: Deployment, what: str, body: dict[str, Any]) -> Any:
    with server.client() as client:
        answer = client.post(f"/api/v1/backends/rehearsal/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _connected(server: Deployment) -> list[str]:
    return [item["name"] for item in server.get("/api/v1/backends")["items"]]


def test_a_server_without_its_database_says_so_and_recovers_by_itself(tmp_path: Path) -> None:
    with fleet(tmp_path, 1) as fleet_of_one:
        (only,) = fleet_of_one.servers
        long = Long(only, tmp_path / "long")
        fleet_of_one.postgres.stop()
        with only.client(timeout=60) as client:
            answer = client.get("/api/v1/jobs")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
            assert client.get("/healthz").status_code == 200
        fleet_of_one.postgres.start()
        job = until(lambda: _submitted(only), 60, "the server to recover")
        assert only.wait(job)["status"] == "completed"
        long.finish(only)


def _submitted(to: Deployment) -> str | None:
    with to.client() as client:
        answer = client.post("/api/v1/jobs", json=shell("true", resources=SMALL))
    return str(answer.json()["id"]) if answer.status_code == 201 else None


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [("CRUCIBLE_KEY_FILE", "other-key", "wrong_deployment"), ("CRUCIBLE_LOCAL_FOLDER", "other", "other_computer")],
)
def test_a_server_that_does_not_belong_is_refused(tmp_path: Path, setting: str, value: str, code: str) -> None:
    with fleet(tmp_path, 1) as fleet_of_one:
        (tmp_path / "other-key").write_text("7a" * 32)
        stranger = fleet_of_one.add(**{setting: str(tmp_path / value)})
        command = [sys.executable, "-m", "crucible.app", "serve"]
        ended = subprocess.run(command, env=stranger.env, capture_output=True, text=True, timeout=60, check=False)
        told = json.loads(ended.stderr.splitlines()[-1])["error"]
        assert (ended.returncode != 0, told["code"]) == (True, code)
        assert told["fix"]
        assert fleet_of_one.servers[0].get("/readyz")["ready"]
