"""A rented machine that dies without a word: the next one goes on from what was stored, and nobody pays for the dead.

Death while the program runs is in test_rehearsal_interruptions.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import until
from tests.scale import Record

STEPS, EVERY, GATE = 12, 5, 8


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path) as world:
        world.crucible.start()
        yield world


def test_at_boot(world: RehearsalDeployment, tmp_path: Path, record: Record) -> None:
    world.cloud.faults(boot_seconds=600)
    job = world.counting(tmp_path / "journal", steps=STEPS, every=EVERY)
    (instance,) = until(world.alive, LONG, "a machine that boots")
    until(lambda: [m for m in world.machines() if m["native_id"] == instance["id"]], LONG, "us to know of it")
    world.cloud.faults(boot_seconds=0)
    _dies(world, instance["id"])
    view = world.crucible.wait(job, LONG)
    assert view["status"] == "completed"
    assert [attempt["reason"] for attempt in view["attempts"]][-1] == "completed"
    assert view["attempt"] == 2
    assert begins_of(tmp_path / "journal") == [1]
    _settled(world)
    record("machine death", when="boot", attempts=view["attempt"])


def test_while_it_saves(world: RehearsalDeployment, tmp_path: Path, record: Record) -> None:
    """The program has ended, and nobody hears of it before the machine is gone: the last stored checkpoint counts."""
    journal = tmp_path / "journal"
    job = world.counting(journal, steps=STEPS, every=EVERY, gates=[GATE])
    instance = world.instance_of(job, 1)
    stored = f"/api/v1/jobs/{job}/checkpoints"
    until(lambda: any(c["step"] == EVERY for c in world.crucible.get(stored)["items"]), LONG, "a checkpoint")
    world.crucible.kill()
    open_gate(journal, GATE)
    until(lambda: list(world.cloud.folder(instance).rglob("exited")), LONG, "the end of the program")
    _dies(world, instance)
    world.crucible.start()
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2)
    first, second = view["attempts"]
    assert first["reason"] == "machine_lost"
    assert second["resume_from"]["step"] == EVERY
    assert begins_of(journal) == [1, EVERY + 1]
    assert steps_of(journal) == [*range(1, STEPS + 1), *range(EVERY + 1, STEPS + 1)]
    _settled(world)
    record("machine death", when="saving", attempts=view["attempt"])


def _dies(world: RehearsalDeployment, instance: str) -> None:
    world.cloud.call("POST", f"/admin/instances/{instance}/kill")


def _settled(world: RehearsalDeployment) -> None:
    """Nothing lives, and what each machine costs is what the provider says."""
    world.nothing_lives()
    billed = world.bills_agree()
    assert billed.keys() <= {machine["id"] for machine in world.machines()}
