"""`crucible checkpoints`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, checkpoint_view, completed, job_view

pytestmark = pytest.mark.enable_socket

DATA = b"w" * 5000
OLD = "ckp-01hzzzzzzzzzzzzzzzzzbbb222"


@pytest.fixture(autouse=True)
def two(server: FakeServer) -> None:
    old = {"id": OLD, "short": "ckp-bbb222", "name": "step_100", "form": "folder", "step": 100, "metric": None}
    gone = {"kept": False, "why": "not among the newest 3", "latest": False}
    server.jobs[JOB] = job_view()
    server.checkpoints = [checkpoint_view(DATA, best=True), checkpoint_view(DATA, **old, **gone)]
    server.contents = {view["id"]: DATA for view in server.checkpoints}


def test_they_are_listed_with_what_is_kept_and_why(cli: Cli) -> None:
    heads, newest, oldest = cli("checkpoints", "abc123").out.splitlines()
    assert heads.split() == ["CHECKPOINT", "STEP", "METRIC", "SIZE", "ATTEMPT", "AGE", "KEPT", "NAME"]
    assert newest.startswith("ckp-aaa111  600   1.25    4.883 KiB  1")
    assert "latest, best  " in newest
    assert "removed: not among the newest 3" in oldest
    assert oldest.endswith("step_100.tar")


def test_as_json_and_as_ids(cli: Cli) -> None:
    assert [item["step"] for item in cli("checkpoints", JOB, "--json").json["items"]] == [600, 100]
    assert cli("checkpoints", JOB, "-q").out.splitlines()[1] == OLD


def test_a_job_without_any_says_how_to_make_them(cli: Cli, server: FakeServer) -> None:
    server.checkpoints = []
    ran = cli("checkpoints", JOB)
    assert (ran.code, ran.out) == (0, "")
    assert "$CRUCIBLE_CHECKPOINT_DIR" in ran.err


def test_one_is_asked_for(cli: Cli, server: FakeServer) -> None:
    ran = cli("checkpoints", JOB, "--now")
    assert (ran.code, "was asked to save" in ran.err) == (0, True)
    assert server.bodies == [(f"/api/v1/jobs/{JOB}/checkpoint", None)]
    server.jobs[JOB] = completed()
    assert cli("checkpoints", JOB, "--now").code == 5


def test_one_is_fetched_and_checked(cli: Cli, tmp_path: Path) -> None:
    ran = cli("checkpoints", JOB, "--download", "best")
    assert (ran.code, ran.out) == (0, f"{tmp_path}/job-abc123/step_00000600.pt\n")
    assert (tmp_path / "job-abc123" / "step_00000600.pt").read_bytes() == DATA
    ran = cli("checkpoints", JOB, "--download", "ckp-bbb222", "--output", "here")
    assert "tar -xf" in ran.err
    assert (tmp_path / "here" / "step_100.tar").read_bytes() == DATA


def test_nothing_is_overwritten_unless_forced(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "step_00000600.pt").write_text("mine")
    ran = cli("checkpoints", JOB, "--download", "latest", "--output", ".")
    assert (ran.code, "--output" in ran.err) == (5, True)
    ran = cli("checkpoints", JOB, "--download", "latest", "--output", ".", "--force", "--json")
    assert ran.json["file"] == str(tmp_path / "step_00000600.pt")
    assert (tmp_path / "step_00000600.pt").read_bytes() == DATA


def test_refusals(cli: Cli) -> None:
    ran = cli("checkpoints", JOB, "--download", "nosuch")
    assert (ran.code, "crucible checkpoints" in ran.err) == (3, True)
    assert cli("checkpoints", "nosuch").code == 3
    assert cli("checkpoints", JOB, "--now", "--download", "best").code == 2
    assert cli("checkpoints", JOB, "--output", ".").code == 2
    assert cli("checkpoints").code == 2
