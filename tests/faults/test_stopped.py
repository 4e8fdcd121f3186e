"""Processes that stand still and go on: out of sight is said, and nothing else follows from it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.faults import impatient_server
from tests.faults.counting_job import Counting
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import View, until
from tests.scale import Record

NOTICE = 4.0
"""Seconds of silence after which this server calls a job unreachable."""
STEPS, GATE = 20, 8


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path) as world:
        world.crucible.start(sys.executable, impatient_server.__file__, str(NOTICE), seconds=LONG)
        yield world


@contextlib.contextmanager
def standing_still(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_an_agent_stands_still(world: RehearsalDeployment, tmp_path: Path, record: Record) -> None:
    """Here and on a rented machine: hosts and runners, while their programs go on."""
    near = Counting(world.crucible, tmp_path / "counting")
    far = world.counting(tmp_path / "journal", steps=STEPS, every=5, gates=[GATE])
    instance = world.instance_of(far, 1)
    with standing_still(*_agents(world.crucible.home), *_agents(world.cloud.folder(instance))):
        for job, attempt in ((near.job, near.attempt), (far, 1)):
            _becomes(world, job, attempt, ["unreachable"])
        near.goes_on()
        open_gate(tmp_path / "journal", GATE)
        until(lambda: STEPS in steps_of(tmp_path / "journal"), LONG, "the program on the rented machine to go on")
        assert [alive["id"] for alive in world.alive()] == [instance], "it is neither ended nor replaced"
    _becomes(world, near.job, near.attempt, [])
    view, lines = near.let_go()
    assert near.left_out(lines) == 0
    for job, attempt, ended in ((near.job, near.attempt, view), (far, 1, world.crucible.wait(far, LONG))):
        assert (ended["status"], ended["attempt"]) == ("completed", attempt)
        assert "unreachable" not in ended["conditions"]
        types = world.types(job)
        assert types.index("unreachable") < types.index("completed")
    assert world.types(near.job).index("unreachable") < world.types(near.job).index("reachable")
    assert begins_of(tmp_path / "journal") == [1]
    world.nothing_lives()
    world.bills_agree()
    record("SIGSTOP", who="host and runner")


def test_the_server_stands_still(world: RehearsalDeployment, tmp_path: Path, record: Record) -> None:
    """Silence that nobody could have heard is held against nobody."""
    near = Counting(world.crucible, tmp_path / "counting")
    far = world.counting(tmp_path / "journal", steps=STEPS, every=5, gates=[GATE])
    world.instance_of(far, 1)
    assert world.crucible.server is not None
    with standing_still(world.crucible.server.pid):
        with pytest.raises(httpx.TimeoutException), world.crucible.client(timeout=NOTICE + 1) as client:
            client.get("/api/v1/jobs")
        near.goes_on()
        open_gate(tmp_path / "journal", GATE)
        until(lambda: STEPS in steps_of(tmp_path / "journal"), LONG, "the program to go on without it")
    view, lines = near.let_go()
    assert near.left_out(lines) == 0
    for attempt, ended in ((near.attempt, view), (1, world.crucible.wait(far, LONG))):
        assert (ended["status"], ended["attempt"]) == ("completed", attempt)
    assert begins_of(tmp_path / "journal") == [1]
    world.nothing_lives()
    record("SIGSTOP", who="server")


def _becomes(world: RehearsalDeployment, job: str, attempt: int, conditions: list[str]) -> View:
    def look() -> View | None:
        view = world.crucible.job(job)
        assert (view["phase"], view["attempt"]) == ("running", attempt)
        return view if view["conditions"] == conditions else None

    return until(look, LONG, f"{job} to be {conditions or 'reachable'}")


def _agents(folder: Path) -> list[int]:
    """Hosts and runners below a folder, as they wrote themselves down."""
    paths = [*folder.rglob("host.json"), *folder.rglob("runner.json")]
    assert len(paths) == 2
    return [int(json.loads(path.read_bytes())["pid"]) for path in paths]
