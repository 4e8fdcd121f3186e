"""`crucible prune` and `crucible db`."""

from __future__ import annotations

import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob

from crucible.client.server import restore as restoring
from crucible.control.db.migrate import create_schema
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.upkeep import restore_hold

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def old(real: RealServer) -> RunningJob:
    """A job with one checkpoint that ended long ago."""
    job = real.start()
    real.run(job.checkpoint, "step_100", b"w" * 2048, 100)
    real.run(job.end)
    real.harness.clock.move(60 * 86400.0)
    return job


def test_a_dry_run_says_what_would_go_and_why(cli: Cli, real: RealServer, old: RunningJob) -> None:
    ran = cli("prune", "--dry-run", "--older-than", "30d")
    assert ran.code == 0
    assert ran.out == f"checkpoints of {old.id}, 2 KiB: it ended 60 days ago, longer than 30 days\n"
    assert "Would remove 1 job, 1 checkpoint (2 KiB)." in ran.err
    assert real.sent == [("/api/v1/prune", {"older_than_seconds": 30 * 86400.0, "dry_run": True})]
    items = cli("prune", "--dry-run", "--yes", "--json").json["items"]
    assert [item["what"] for item in items] == ["checkpoints"]
    assert cli("checkpoints", old.id, "--json").json["items"][0]["kept"]


def test_pruning_is_asked_about(cli: Cli, old: RunningJob) -> None:
    ran = cli("prune")
    assert ran.code == 2
    assert "Remove 1 job, 1 checkpoint (2 KiB)?" in ran.err
    assert cli("checkpoints", old.id, "--json").json["items"][0]["kept"]
    ran = cli("prune", "--yes")
    assert (ran.code, "Removed 1 job, 1 checkpoint (2 KiB)." in ran.err) == (0, True)
    assert not cli("checkpoints", old.id, "--json").json["items"][0]["kept"]


def test_nothing_to_prune_needs_no_question(cli: Cli, real: RealServer) -> None:
    ran = cli("prune")
    assert (ran.code, ran.out) == (0, "")
    assert "There is nothing to remove." in ran.err


@pytest.mark.parametrize("age", ["-1d", "soon", ""])
def test_an_age_that_is_none(cli: Cli, real: RealServer, age: str) -> None:
    assert cli("prune", f"--older-than={age}", "--yes").code == 2
    assert real.sent == []


def test_a_backup_is_written_on_the_servers_disk(
    cli: Cli, real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, copy, other = real.harness.services.backup, tmp_path / "copy.db", tmp_path / "other.db"
    real.run(InlineDb(tmp_path / "crucible.db").write, create_schema)
    monkeypatch.setattr(backup, "_source", replace(backup._source, database=tmp_path / "crucible.db"))
    ran = cli("db", "backup", str(copy))
    assert (ran.code, ran.out) == (0, f"{copy}\n")
    assert f"crucible db restore {copy}" in ran.err
    assert cli("db", "backup", str(other), "--json").json["bytes"] == other.stat().st_size
    ran = cli("db", "backup", "copy.db")
    assert (ran.code, "absolute path" in ran.err) == (2, True)


def test_destruction_is_allowed_again_by_hand(cli: Cli, real: RealServer) -> None:
    now = real.harness.clock.now()
    real.run(real.harness.sql, lambda conn: restore_hold.mark_restored(conn, now, now - 60))
    assert cli("db", "confirm").code == 2
    assert real.sent == []
    assert cli("db", "confirm", "--yes", "--json").json["confirmed"] is True
    ran = cli("db", "confirm", "--yes")
    assert (ran.code, "launched and terminated again" in ran.err) == (0, False)


def test_what_a_confirmation_means_is_told(cli: Cli, real: RealServer) -> None:
    now = real.harness.clock.now()
    real.run(real.harness.sql, lambda conn: restore_hold.mark_restored(conn, now, now - 60))
    ran = cli("db", "confirm", "--yes")
    assert (ran.code, "launched and terminated again" in ran.err) == (0, True)


def test_a_named_server_is_not_restored_from_here(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "copy.db").touch()
    ran = cli("db", "restore", "copy.db", "--yes")
    assert (ran.code, "embedded server" in ran.err) == (2, True)


@pytest.fixture
def restorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of the one that restores; it writes down what it was told."""
    program, told = tmp_path / "restorer", tmp_path / "told"
    program.write_text(f'#!{sys.executable}\nimport os, sys\nopen({str(told)!r}, "w").write(" ".join(sys.argv[1:]))\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(restoring, "COMMAND", (str(program),))
    return told


def test_a_restore_is_asked_about_and_says_what_comes_next(cli: Cli, tmp_path: Path, restorer: Path) -> None:
    (tmp_path / "copy.db").touch()
    ran = cli("db", "restore", "copy.db")
    assert (ran.code, "--yes" in ran.err, restorer.exists()) == (2, True, False)
    ran = cli("db", "restore", "copy.db", "--yes")
    assert ran.code == 0
    assert "crucible db confirm" in ran.err
    asked = f"{tmp_path / 'copy.db'} --home {tmp_path / 'home'}"
    assert restorer.read_text() == asked
    assert cli("db", "restore", "copy.db", "--yes", "--json").json["file"] == str(tmp_path / "copy.db")
    assert cli("db", "restore", "copy.db", "--yes", "--force").code == 0
    assert restorer.read_text() == f"{asked} --force"
    assert cli("db", "restore", "copy.db", "--yes", "--in-use").code == 0
    assert restorer.read_text() == f"{asked} --in-use", "one flag does not stand for the other"


def test_a_restore_needs_a_file(cli: Cli, restorer: Path) -> None:
    assert cli("db", "restore", "nosuch.db", "--yes").code == 2
    assert not restorer.exists()


def test_a_restore_needs_the_server_to_be_down(
    cli: Cli, tmp_path: Path, restorer: Path, our_server: RealServer
) -> None:
    (tmp_path / "copy.db").touch()
    ran = cli("db", "restore", "copy.db", "--yes")
    assert (ran.code, "crucible down" in ran.err, restorer.exists()) == (5, True, False)
