"""Test which checkpoints of a folder are announced, depending on how the program ended."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.agent.waiting import poll

from crucible.agent.checkpoints import CheckpointCallbacks, CheckpointKeeper
from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.runner.attempt_folder import AttemptFolder

IN_ORDER = {"code": 0, "signal": None, "cause": "exit"}
KILLED = {"code": None, "signal": 9, "cause": "signal"}


@dataclass
class Store:
    tries: list[str] = field(default_factory=list)

    def put_checkpoint(self, sha256: str, content: BinaryIO, size: int) -> None:
        self.tries.append(sha256)

    def close(self) -> None:
        pass


@dataclass
class Kept:
    folder: AttemptFolder
    announced: list[Mapping[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keeper(self) -> CheckpointKeeper:
        telling = CheckpointCallbacks(self.announced.append, self.notes.append, lambda: None)
        return CheckpointKeeper(self.folder, Store(), telling)  # type: ignore[arg-type]

    def write(self, name: str, data: bytes = b"1") -> None:
        (self.folder.checkpoints / name).write_bytes(data)

    def names(self) -> list[object]:
        return [data["name"] for data in self.announced]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    folder = AttemptFolder.for_attempt(tmp_path, "a", 0)
    folder.create()
    folder.make_job_folders()
    return Kept(folder)


def test_a_program_that_never_ran_has_no_checkpoints(tmp_path: Path) -> None:
    kept = Kept(AttemptFolder.for_attempt(tmp_path, "a", 0))
    kept.folder.create()
    kept.keeper().finish({"code": None, "cause": "staging_failed"})
    assert (kept.announced, kept.notes) == ([], [])


@pytest.mark.parametrize(
    ("exited", "expected"),
    [
        (IN_ORDER, ["a", "b"]),
        ({"code": 143, "cause": "stopped"}, ["a", "b"]),
        ({"code": 1, "cause": "time_limit"}, ["a", "b"]),
        ({"code": 143, "cause": "interrupted"}, ["b"]),  # in a hurry
        ({"code": 1, "cause": "exit"}, []),
        ({"code": None, "signal": 15, "cause": "stopped"}, []),
        ({"code": None, "signal": None, "cause": "runner_lost"}, []),
        ({"code": 1, "cause": "out_of_memory"}, []),
        (KILLED, []),
    ],
)
def test_fresh_files_count_if_the_program_ended_in_order(
    kept: Kept, exited: Mapping[str, object], expected: list[str]
) -> None:
    kept.write("a")
    kept.write("b", b"2")
    kept.keeper().finish(exited)
    assert kept.names() == expected
    assert bool(kept.notes) is (not expected)


def test_what_is_noted_counts_however_it_ended(kept: Kept) -> None:
    for name in ("a", "b"):
        kept.write(name, name.encode())
    keeper = kept.keeper()
    keeper.add_note(SaveNote("a", 5))
    keeper.finish(KILLED)
    assert [(data["name"], data["step"]) for data in kept.announced] == [("a", 5)]
    assert "'b'" in kept.notes[0]
    assert "'a'" not in kept.notes[0]


def test_a_look_after_the_death_settles_nothing_and_loses_no_note(kept: Kept) -> None:
    kept.write("noted")
    kept.write("torn", b"2")
    died = threading.Event()
    keeper = kept.keeper()
    keeper.add_note(SaveNote("noted", 5))

    def dead() -> bool:
        died.set()
        return False

    keeper.watch(dead)
    assert died.wait(20)
    keeper.finish(KILLED)
    assert kept.names() == ["noted"]


def test_a_noted_checkpoint_does_not_wait_for_the_end(kept: Kept) -> None:
    keeper = kept.keeper()
    keeper.watch(lambda: True)
    kept.write("a")
    keeper.add_note(SaveNote("a", 5))
    poll(lambda: kept.names() == ["a"])
    keeper.finish(IN_ORDER)
    assert kept.names() == ["a"]


def test_a_successor_complains_only_of_what_was_never_stored(kept: Kept) -> None:
    kept.write("a")
    kept.keeper().finish(IN_ORDER)
    kept.write("b", b"2")
    kept.keeper().finish(KILLED)
    assert kept.names() == ["a"]
    assert "'b'" in kept.notes[0]
    assert "'a'" not in kept.notes[0]
