"""Machines that vanish, on a cloud whose agents only share a store with the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path, {"CRUCIBLE_CHANNEL": "store"}) as place:
        place.crucible.start()
        yield place


def test_a_noticed_loss(place: RehearsalDeployment, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    job = place.counting(journal, steps=8, every=100, gates=(5,), market="spot")
    instance = place.instance_of(job, 1)
    until(lambda: steps_of(journal) == [1, 2, 3, 4], LONG, "the gate")
    place.reclaim(instance, notice=30.0)
    place.instance_of(job, 2)
    open_gate(journal, 5)
    view = place.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2)
    assert steps_of(journal) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert begins_of(journal) == [1, 5]
    place.nothing_lives()


def test_what_a_machine_said_before_it_went_counts(place: RehearsalDeployment, tmp_path: Path) -> None:
    """The server is dead while the machine stores a checkpoint, and still dead when the machine is taken away."""
    journal = tmp_path / "journal"
    job = place.counting(journal, steps=8, every=4, gates=(4, 5), market="spot")
    instance = place.instance_of(job, 1)
    until(lambda: steps_of(journal) == [1, 2, 3], LONG, "the first gate")
    place.crucible.kill()
    open_gate(journal, 4)
    until(lambda: _checkpoints(place) and _segments_after_checkpoint(place), LONG, "the checkpoint in the mailbox")
    place.reclaim(instance, notice=0.0)
    until(lambda: not place.alive(), LONG, "the machine to be gone")
    open_gate(journal, 5)
    place.crucible.start()
    view = place.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2)
    assert begins_of(journal) == [1, 5]
    assert steps_of(journal) == [1, 2, 3, 4, 5, 6, 7, 8]
    place.nothing_lives()


def _mail(place: RehearsalDeployment) -> list[Path]:
    return [path for path in (place.crucible.home / "store" / "mailboxes").rglob("*") if path.is_file()]


def _checkpoints(place: RehearsalDeployment) -> list[Path]:
    return [path for path in _mail(place) if path.name.startswith("checkpoint-")]


def _segments_after_checkpoint(place: RehearsalDeployment) -> bool:
    """Whether a batch announces the checkpoint."""
    segments = [path for path in _mail(place) if path.parent.name == "up"]
    return any(b'"checkpoint"' in _content(path) for path in segments)


def _content(path: Path) -> bytes:
    """Nothing of one that was taken away meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
