"""Wall clocks that are set while jobs run: no job is restarted, no machine ended or leaked, no time runs backwards."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.agent.agents_server import AgentsServer
from tests.agent.real_machine import A1, Machine, script
from tests.agent.waiting import poll
from tests.faults.clocks import WallClock
from tests.faults.counting_job import SMALL, Counting
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import Deployment, View, shell, until
from tests.scale import Record

from crucible.core.compute.resources import Resources
from crucible.wire.documents.messages import MessageKind

HOUR, DAY = 3600.0, 86400.0
JUMPS = (2 * HOUR, -2 * HOUR, 10 * DAY, 0.0)
STEPS, GATE = 20, 8


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def world(tmp_path: Path, clock: WallClock) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path) as world:
        world.crucible.start(seconds=LONG, **clock.env)
        yield world


def test_the_servers_clock_is_set(world: RehearsalDeployment, clock: WallClock, tmp_path: Path, record: Record) -> None:
    began = time.time()
    near = Counting(world.crucible, tmp_path / "counting")
    far = world.counting(tmp_path / "journal", steps=STEPS, every=5, gates=[GATE])
    world.instance_of(far, 1)
    for told, jump in enumerate(JUMPS, 1):
        whole = world.crucible.submit(shell("echo whole"))
        clock.set(jump)
        until(lambda told=told: _set_clocks(world.crucible) >= told, LONG, f"the server to notice {jump:+.0f} s")
        near.goes_on()
        assert _running(world, near.job, far) == [("running", near.attempt, []), ("running", 1, [])]
        assert world.crucible.job(whole)["phase"] == "queued"
        assert len(world.alive()) == 1
        if jump != JUMPS[-1]:
            world.crucible.cancel(whole)
            _goes_through(world.crucible)
    views = [*_all_end(world, near, far, tmp_path / "journal"), world.crucible.wait(whole, LONG)]
    assert [(view["status"], view["attempt"]) for view in views] == [("completed", n) for n in (near.attempt, 1, 1)]
    for view in views:
        _times_are_sane(world.crucible, view, began)
    world.nothing_lives()
    world.bills_agree()
    record("clock jumps", where="server", jumps=len(JUMPS))


def test_the_server_is_started_again_at_another_time(
    world: RehearsalDeployment, clock: WallClock, tmp_path: Path, record: Record
) -> None:
    """Two hours ahead for a while, then back: what was written down then is in the future now."""
    near = Counting(world.crucible, tmp_path / "counting")
    far = world.counting(tmp_path / "journal", steps=STEPS, every=5, gates=[GATE])
    world.instance_of(far, 1)
    for jump in (2 * HOUR, 0.0):
        world.crucible.kill()
        clock.set(jump)
        world.crucible.start(seconds=LONG, **clock.env)
        _goes_through(world.crucible)
        assert _running(world, near.job, far) == [("running", near.attempt, []), ("running", 1, [])]
    cancelled = world.submit(shell("sleep 600"))
    world.instance_of(cancelled, 1)
    world.crucible.cancel(cancelled)
    assert world.crucible.wait(cancelled, LONG)["status"] == "cancelled"
    views = _all_end(world, near, far, tmp_path / "journal")
    assert [(view["status"], view["attempt"]) for view in views] == [("completed", n) for n in (near.attempt, 1)]
    assert all(0 <= view["ran_seconds"] < HOUR for view in views)
    world.nothing_lives()
    world.bills_agree()
    record("clock jumps", where="server, between two runs")


def _set_clocks(crucible: Deployment) -> int:
    return (crucible.home / "server.log").read_text().count("the computer's clock was set")


def _goes_through(crucible: Deployment) -> None:
    """A new job is placed, run and settled."""
    view = crucible.wait(crucible.submit(shell("true", resources=SMALL)), LONG)
    assert (view["status"], view["attempt"]) == ("completed", 1)
    assert 0 <= view["ran_seconds"] < HOUR


def _running(world: RehearsalDeployment, *jobs: str) -> list[tuple[str, int, list[str]]]:
    views = [world.crucible.job(job) for job in jobs]
    return [(view["phase"], view["attempt"], view["conditions"]) for view in views]


def _all_end(world: RehearsalDeployment, near: Counting, far: str, journal: Path) -> list[View]:
    near.goes_on()
    first, lines = near.let_go()
    assert near.left_out(lines) == 0
    open_gate(journal, GATE)
    second = world.crucible.wait(far, LONG)
    assert begins_of(journal) == [1]
    assert steps_of(journal) == list(range(1, STEPS + 1))
    return [first, second]


def _times_are_sane(crucible: Deployment, view: View, began: float) -> None:
    """They rise, and lie within the test."""
    times = [datetime.fromisoformat(event["at"]).timestamp() for event in crucible.events(view["id"])]
    assert all(earlier <= later for earlier, later in itertools.pairwise(times))
    assert began - 60 <= times[0]
    assert times[-1] <= time.time() + 60
    assert 0 <= view["ran_seconds"] <= time.time() - began


@pytest.fixture
def control(tmp_path: Path) -> Iterator[AgentsServer]:
    control = AgentsServer(tmp_path)
    yield control
    control.close()


@pytest.fixture
def machine(tmp_path: Path, control: AgentsServer) -> Iterator[Machine]:
    machine = Machine(tmp_path, control)
    yield machine
    machine.close()


def test_a_machines_clock_is_set(
    machine: Machine, control: AgentsServer, clock: WallClock, tmp_path: Path, record: Record
) -> None:
    """Lease, time limit and the machine's end are counted by the clock that nobody sets."""
    control.set_terms(lease_seconds=6 * HOUR, ends_in=DAY)
    machine.start_host(**clock.env)
    go = tmp_path / "go"
    text = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\nprint('over')"
    machine.run(script(text, resources=Resources(seconds=HOUR)))
    control.wait_for(A1, MessageKind.STARTED, 60)
    runner = machine.runner()
    for jump in JUMPS[:3]:
        clock.set(jump)
        until(lambda by=jump: abs(control.attempts[A1].messages[-1].at - time.time() - by) < 300, 60, f"{jump:+.0f} s")
        assert not control.attempts[A1].of(MessageKind.EXITED)
        assert machine.runner() == runner
    go.touch()
    exited = control.wait_for(A1, MessageKind.EXITED, 60)
    assert (exited.data["code"], exited.data["cause"]) == (0, "exit")
    assert 0 < float(str(exited.data["seconds"])) < HOUR
    control.wait_for(A1, MessageKind.ENDED, 60)
    assert control.attempts[A1].log() == b"over\n"
    poll(lambda: not machine.folder().exists())
    record("clock jumps", where="agent", jumps=len(JUMPS[:3]))
