"""A disk that takes no more writes, under the server or under a machine: refused and said, and over when it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.counting_job import SMALL, Counting
from tests.faults.disks import FailingDisk, MiB, failing_disk
from tests.harness import Deployment, View, alive, shell, until
from tests.scale import Record

ROOM = 64 * MiB
MACHINE_ROOM = 400 * MiB


@pytest.fixture
def state(tmp_path: Path) -> Iterator[FailingDisk]:
    """The disk of everything but the machines."""
    with failing_disk(tmp_path / "home", tmp_path / "image", ROOM) as disk:
        yield disk


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path / "home" / "machines", tmp_path / "image", MACHINE_ROOM) as disk:
        yield disk


def test_a_server_that_cannot_write(state: FailingDisk, tmp_path: Path, record: Record) -> None:
    elsewhere = {"CRUCIBLE_LOCAL_FOLDER": str(tmp_path / "home-of-machines"), "CRUCIBLE_DISK_RESERVE": "0"}
    with Deployment(tmp_path, elsewhere) as crucible:
        counting = Counting(crucible, tmp_path / "counting")
        state.seal()
        _refuses(crucible, counting)
        state.unseal()
        accepted = until(lambda: _accepted(crucible), 30, "the server to take jobs again")
        state.fail()
        _refuses(crucible, counting)
        _is_told(crucible)
        crucible.stop()
        asked = crucible.cli("jobs")
        assert asked.returncode == 1
        assert "Read-only file system" in asked.stderr
        assert "CRUCIBLE_HOME" in asked.stderr
        counting.goes_on()
        state.repair()
        crucible.start()
        view, lines = counting.let_go()
        assert (view["status"], view["attempt"]) == ("completed", counting.attempt)
        assert lines == [*(f"line {n}" for n in range(len(lines) - 1)), f"end {len(lines) - 1}"]
        assert crucible.wait(accepted)["status"] == "completed"
        record("read-only disk", where="server", acknowledged=2)


def _refuses(crucible: Deployment, counting: Counting) -> None:
    """Submits are refused with the fix; everything else goes on."""
    problem = until(lambda: _problem(crucible), 30, "a submit to be refused")
    assert (problem["status"], problem["code"]) == (503, "database_error")
    assert "read-only" in problem["fix"]
    counting.goes_on()
    view = crucible.job(counting.job)
    assert (view["phase"], view["attempt"]) == ("running", counting.attempt)


def _is_told(crucible: Deployment) -> None:
    asked = crucible.cli("doctor")
    assert asked.returncode == 1
    assert "cannot be written: Read-only file system" in asked.stdout


def _problem(crucible: Deployment) -> View | None:
    with crucible.client() as client:
        answer = client.post("/api/v1/jobs", json=shell("true", resources=SMALL))
    assert answer.status_code in (201, 503), answer.text
    return dict(answer.json()) if answer.status_code == 503 else None


def _accepted(crucible: Deployment) -> str | None:
    with crucible.client() as client:
        answer = client.post("/api/v1/jobs", json=shell("true", resources=SMALL))
    return str(answer.json()["id"]) if answer.status_code == 201 else None


def test_a_machine_that_cannot_write(machines: FailingDisk, tmp_path: Path, record: Record) -> None:
    """The program goes on; what it prints meanwhile is left out and counted."""
    with Deployment(tmp_path) as crucible:
        counting = Counting(crucible, tmp_path / "counting")
        program = crucible.phase(counting.job, "running")["attempts"][-1]["facts"]["started"]["pid"]
        until(lambda: crucible.log(counting.job), 30, "its first output")
        machines.seal()
        for _ in range(3):
            counting.goes_on()
        assert alive(program)
        machines.unseal()
        until(lambda: b"lines left out" in crucible.log(counting.job), 60, "output again")
        counting.goes_on()
        view, lines = counting.let_go()
        assert (view["status"], view["attempt"]) == ("completed", counting.attempt), view["reason"]
        left_out = counting.left_out(lines)
        assert left_out
        crucible.nothing_left()
        record("read-only disk", where="machine", lines=len(lines), left_out=left_out)
