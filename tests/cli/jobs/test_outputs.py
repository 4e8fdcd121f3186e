"""`crucible checkpoints`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob

from crucible.core.job.spec import KeepPolicy

pytestmark = pytest.mark.enable_socket

DATA = b"w" * 5000


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    """A job that keeps one checkpoint and has made two."""
    job = real.start(keep=KeepPolicy(latest=1))
    real.run(job.checkpoint, "step_100", DATA[:-1], 100, form="folder")
    real.run(job.checkpoint, "step_00000600.pt", DATA, 600, metric=1.25)
    real.harness.clock.move(10_000)
    real.run(real.harness.services.retention.round)
    return job


def test_they_are_listed_with_what_is_kept_and_why(cli: Cli, job: RunningJob) -> None:
    heads, newest, oldest = cli("checkpoints", job.short.removeprefix("job-")).out.splitlines()
    assert heads.split() == ["CHECKPOINT", "STEP", "METRIC", "SIZE", "ATTEMPT", "AGE", "KEPT", "NAME"]
    assert newest.split()[1:6] == ["600", "1.25", "4.883", "KiB", "1"]
    assert "latest, best, the newest  " in newest
    assert "  removed: only the newest and the best are kept  " in oldest
    assert oldest.endswith("step_100.tar")


def test_as_json_and_as_ids(cli: Cli, job: RunningJob) -> None:
    items = cli("checkpoints", job.id, "--json").json["items"]
    assert [item["step"] for item in items] == [600, 100]
    assert cli("checkpoints", job.id, "-q").out.split() == [item["id"] for item in items]


def test_a_job_without_any_says_how_to_make_them(cli: Cli, real: RealServer) -> None:
    ran = cli("checkpoints", real.start().id)
    assert (ran.code, ran.out) == (0, "")
    assert "$CRUCIBLE_CHECKPOINT_DIR" in ran.err


def test_one_is_asked_for(cli: Cli, real: RealServer, job: RunningJob) -> None:
    ran = cli("checkpoints", job.id, "--now")
    assert (ran.code, "was asked to save" in ran.err) == (0, True)
    assert real.sent == [(f"/api/v1/jobs/{job.id}/checkpoint", None)]
    real.run(job.end)
    assert cli("checkpoints", job.id, "--now").code == 5


def test_one_is_fetched_and_checked(cli: Cli, job: RunningJob, tmp_path: Path) -> None:
    ran = cli("checkpoints", job.id, "--download", "best")
    assert (ran.code, ran.out) == (0, f"{tmp_path}/{job.short}/step_00000600.pt\n")
    assert (tmp_path / job.short / "step_00000600.pt").read_bytes() == DATA


def test_a_folder_is_fetched_as_an_archive(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    job = real.start()
    real.run(job.checkpoint, "step_100", DATA, 100, form="folder")
    ran = cli("checkpoints", job.id, "--download", "latest", "--output", "here")
    assert "tar -xf" in ran.err
    assert (tmp_path / "here" / "step_100.tar").read_bytes() == DATA


def test_nothing_is_overwritten_unless_forced(cli: Cli, job: RunningJob, tmp_path: Path) -> None:
    (tmp_path / "step_00000600.pt").write_text("mine")
    ran = cli("checkpoints", job.id, "--download", "latest", "--output", ".")
    assert (ran.code, "--output" in ran.err) == (5, True)
    ran = cli("checkpoints", job.id, "--download", "latest", "--output", ".", "--force", "--json")
    assert ran.json["file"] == str(tmp_path / "step_00000600.pt")
    assert (tmp_path / "step_00000600.pt").read_bytes() == DATA


def test_refusals(cli: Cli, job: RunningJob) -> None:
    ran = cli("checkpoints", job.id, "--download", "nosuch")
    assert (ran.code, "crucible checkpoints" in ran.err) == (3, True)
    assert cli("checkpoints", "nosuch").code == 3
    assert cli("checkpoints", job.id, "--now", "--download", "best").code == 2
    assert cli("checkpoints", job.id, "--output", ".").code == 2
    assert cli("checkpoints").code == 2
