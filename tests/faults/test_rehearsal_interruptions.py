"""Machines that are taken back: the job goes on where it was, at the next place of its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import until

STEPS, EVERY = 40, 5


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path_factory.mktemp("interruptions")) as world:
        world.crucible.start()
        yield world


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def reached(journal: Path, step: int) -> None:
    until(lambda: step in steps_of(journal), LONG, f"step {step}")


def begun(journal: Path, attempts: int) -> None:
    until(lambda: len(begins_of(journal)) == attempts, LONG, f"attempt {attempts} to begin")


def stored(world: RehearsalDeployment, job: str, step: int) -> None:
    """A checkpoint of this step is in the store."""
    path = f"/api/v1/jobs/{job}/checkpoints"
    until(lambda: any(c["step"] == step for c in world.crucible.get(path)["items"]), LONG, f"checkpoint {step}")


def test_with_notice_nothing_is_lost(world: RehearsalDeployment, journal: Path) -> None:
    job = world.counting(journal, steps=STEPS, every=1000, gates=[8], fallback=["local"], market="spot")
    instance = world.instance_of(job, 1)
    reached(journal, 7)
    world.reclaim(instance, 30)
    begun(journal, 2)
    open_gate(journal, 8)
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["backend"], view["previous_backend"]) == ("completed", "local", "rehearsal")
    first, second = view["attempts"]
    assert (first["reason"], first["simulated"], second["simulated"]) == ("interrupted", True, False)
    assert second["resume_from"]["step"] == 7
    assert begins_of(journal) == [1, 8]
    assert steps_of(journal) == list(range(1, STEPS + 1))
    types = world.types(job)
    assert types.index("interruption_notice") < types.index("retrying")
    assert view["simulated"]
    world.nothing_lives()
    world.bills_agree()


def test_without_notice_less_than_an_interval_is_lost(world: RehearsalDeployment, journal: Path) -> None:
    job = world.counting(journal, steps=STEPS, every=EVERY, gates=[8], fallback=["local"], market="spot")
    instance = world.instance_of(job, 1)
    reached(journal, 7)
    stored(world, job, 5)
    world.reclaim(instance, None)
    begun(journal, 2)
    open_gate(journal, 8)
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["backend"]) == ("completed", "local")
    assert [a["reason"] for a in view["attempts"]] == ["interrupted", "completed"]
    assert begins_of(journal) == [1, 6]
    assert steps_of(journal) == [*range(1, 8), *range(6, STEPS + 1)]
    world.nothing_lives()


def test_hardware_that_fails_is_no_interruption(world: RehearsalDeployment, journal: Path) -> None:
    job = world.counting(journal, steps=STEPS, every=EVERY, gates=[8], fallback=["local"])
    instance = world.instance_of(job, 1)
    stored(world, job, 5)
    world.cloud.call("POST", f"/admin/instances/{instance}/kill")
    begun(journal, 2)
    open_gate(journal, 8)
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["backend"]) == ("completed", "local")
    assert [a["reason"] for a in view["attempts"]] == ["machine_lost", "completed"]
    assert "hardware failed" in view["attempts"][0]["detail"]
    assert begins_of(journal) == [1, 6]


def test_three_interruptions_at_the_same_place(world: RehearsalDeployment, journal: Path) -> None:
    """Without another place to go to it is rented again; each attempt begins where the last one was saved."""
    gates = [8, 16, 24]
    job = world.counting(journal, steps=STEPS, every=EVERY, gates=gates, market="spot")
    for attempt, (gate, notice, saved) in enumerate(zip(gates, (30, None, 30), (5, 15, 20), strict=True), 1):
        instance = world.instance_of(job, attempt)
        stored(world, job, saved)
        world.reclaim(instance, notice)
        begun(journal, attempt + 1)
        open_gate(journal, gate)
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 4)
    assert [a["reason"] for a in view["attempts"]] == ["interrupted"] * 3 + ["completed"]
    assert {a["backend"] for a in view["attempts"]} == {"rehearsal"}
    assert len({a["machine"] for a in view["attempts"]}) == 4
    assert begins_of(journal) == [1, 8, 16, 24]
    assert [a["resume_from"]["step"] for a in view["attempts"][1:]] == [7, 15, 23]
    assert steps_of(journal) == list(range(1, STEPS + 1))
    world.nothing_lives()
    world.bills_agree()


def test_a_machine_whose_time_is_nearly_over_hands_the_job_on(tmp_path: Path, journal: Path) -> None:
    """Suspended in time, saved, and taken up on another machine of the same place."""
    with rehearsed(tmp_path, {"CRUCIBLE_MACHINE_SECONDS": "24"}) as world:
        world.crucible.start()
        job = world.counting(journal, steps=80, every=1000, pause=0.25)
        view = world.crucible.wait(job, 3 * LONG)
        assert view["status"] == "completed", view["reason"]
        assert len(view["attempts"]) >= 2
        assert [a["reason"] for a in view["attempts"][:-1]] == ["suspended"] * (len(view["attempts"]) - 1)
        assert {a["backend"] for a in view["attempts"]} == {"rehearsal"}
        assert steps_of(journal) == list(range(1, 81)), "no step is done twice"
        world.nothing_lives()
