"""A disk without room, under the server or under a machine: said with its fix, nothing lost, and over with it."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.counting_job import SMALL, Counting
from tests.faults.disks import Disk, MiB, small_disk
from tests.harness import Deployment, View, alive, shell, until
from tests.scale import Record

ROOM = 32 * MiB
MACHINE_ROOM = 320 * MiB
"""Below 256 MiB a machine keeps no more output."""
REFUSED = 60
"""Requests while there is no room: enough that the server's own log finds none either."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Disk]:
    """The disk of the machines alone."""
    with small_disk(tmp_path / "home" / "machines", MACHINE_ROOM) as disk:
        yield disk


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Disk]:
    """The disk of everything but the machines, which have one of their own."""
    with small_disk(tmp_path / "home", ROOM) as disk, small_disk(tmp_path / "home" / "machines", MACHINE_ROOM):
        yield disk


def test_a_server_without_room(state: Disk, tmp_path: Path, record: Record) -> None:
    with Deployment(tmp_path, {"CRUCIBLE_DISK_RESERVE": "0"}) as crucible:
        counting = Counting(crucible, tmp_path / "counting")
        ending = crucible.submit(
            shell(f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done; echo over", resources=SMALL)
        )
        crucible.phase(ending, "running")
        state.fill()
        accepted, refused = _submit_until_full(crucible)
        assert (refused["code"], refused["status"]) == ("disk_full", 507)
        assert "CRUCIBLE_HOME" in refused["fix"]
        _every_write_is_refused(crucible, counting.job)
        (tmp_path / "end").touch()
        counting.write_checkpoint()
        counting.show_checkpoint()
        counting.goes_on()
        _shown_as_running(crucible, counting)
        state.make_room()
        view, lines = counting.let_go()
        assert (view["status"], view["attempt"]) == ("completed", counting.attempt)
        assert lines == [*(f"line {n}" for n in range(len(lines) - 1)), f"end {len(lines) - 1}"]
        assert [checkpoint["name"] for checkpoint in counting.stored()] == ["step-7.bin"]
        for job in [ending, *accepted]:
            view = crucible.wait(job)
            assert (view["status"], view["attempt"]) == ("completed", 1)
        assert crucible.log(ending) == b"over\n"
        _its_log_goes_on(crucible)
        crucible.nothing_left()
        record("disk full", where="server", refused=REFUSED, acknowledged=len(accepted) + 2)


def _submit_until_full(crucible: Deployment) -> tuple[list[str], View]:
    """The jobs that were still accepted, and how the last of many others was refused."""
    accepted, refused = [], []
    while len(refused) < REFUSED:
        answer = _ask(
            crucible,
            "POST",
            "/api/v1/jobs",
            json=shell("true", resources=SMALL),
            headers={"Idempotency-Key": uuid.uuid4().hex},
        )
        assert answer.status_code in (201, 507), answer.text
        if answer.status_code == 201:
            accepted.append(str(answer.json()["id"]))
        else:
            refused.append(answer.json())
    return accepted, refused[-1]


def _every_write_is_refused(crucible: Deployment, job: str) -> None:
    code = os.urandom(MiB)
    for answer in (
        _ask(crucible, "PUT", f"/api/v1/bundles/{hashlib.sha256(code).hexdigest()}", content=code),
        _ask(crucible, "POST", f"/api/v1/jobs/{job}/cancel"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (507, "disk_full"), answer.text
        assert answer.json()["fix"]


def _shown_as_running(crucible: Deployment, counting: Counting) -> None:
    view = crucible.job(counting.job)
    assert (view["phase"], view["attempt"], view["conditions"]) == ("running", counting.attempt, [])
    asked = crucible.cli("doctor")
    assert asked.returncode == 1
    assert "disk          BROKEN" in asked.stdout
    assert "Free some space" in asked.stdout


def _its_log_goes_on(crucible: Deployment) -> None:
    """What it had no room for is counted there."""
    crucible.stop()
    text = (crucible.home / "server.log").read_text()
    assert "lines left out" in text
    assert '"stopped"' in text


def _ask(crucible: Deployment, method: str, path: str, **more: Any) -> Any:
    with crucible.client() as client:
        return client.request(method, path, **more)


def test_a_machine_without_room(machines: Disk, tmp_path: Path, record: Record) -> None:
    """Output that finds no room is left out and counted; the program, its checkpoint and its end are not."""
    with Deployment(tmp_path) as crucible:
        counting = Counting(crucible, tmp_path / "counting", size=8 * MiB)
        started = crucible.phase(counting.job, "running")["attempts"][-1]["facts"]["started"]["pid"]
        counting.write_checkpoint()
        machines.fill(leave=2 * MiB)
        counting.show_checkpoint()
        notes = until(lambda: {*counting.notes()} if len(counting.notes()) > 1 else None, 60, "what went wrong")
        assert any("output is being left out: the disk is nearly full" in note for note in notes)
        assert any("'step-7.bin' is not stored yet: the disk of the machine is full" in note for note in notes)
        machines.fill()
        counting.goes_on()
        assert alive(started)
        assert crucible.job(counting.job)["conditions"] == []
        machines.make_room()
        until(counting.stored, 60, "the checkpoint")
        until(lambda: b"lines left out" in crucible.log(counting.job), 60, "output again")
        counting.goes_on()
        view, lines = counting.let_go()
        assert (view["status"], view["attempt"]) == ("completed", counting.attempt)
        left_out = counting.left_out(lines)
        assert left_out
        assert [checkpoint["name"] for checkpoint in counting.stored()] == ["step-7.bin"]
        crucible.nothing_left()
        record("disk full", where="machine", lines=len(lines), left_out=left_out)
