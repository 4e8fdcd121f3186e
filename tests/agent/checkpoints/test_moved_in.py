"""Test that a checkpoint which was renamed into the folder is whole, however its program ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crucible.agent.checkpoints.listing import CheckpointEntry, read_entry
from crucible.agent.checkpoints.watch import FolderScan, FolderWatch, ProgramState, WholeReason, record_scan

LATER = 50_000_000
"""Nanoseconds; the clock of the file system may be coarse."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def seen(folder: Path, name: str) -> CheckpointEntry:
    entry = read_entry(folder, name)
    assert entry is not None
    return entry


def written_before(path: Path) -> None:
    """Set the file's times back, as if some time had passed since it was written."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns - LATER))


def how_after_death(entry: CheckpointEntry) -> WholeReason | None:
    _, found = record_scan(FolderWatch(), FolderScan(0.0, 0.1, (entry,), ProgramState.DIED))
    return found[0].how if found else None


def test_a_file_renamed_into_the_folder_survives_its_program(tmp_path: Path, folder: Path) -> None:
    made = tmp_path / "made.pt"
    made.write_bytes(b"weights")
    written_before(made)
    made.rename(folder / "made.pt")
    assert how_after_death(seen(folder, "made.pt")) is WholeReason.MOVED_IN


def test_a_folder_renamed_into_the_folder_survives_its_program(tmp_path: Path, folder: Path) -> None:
    made = tmp_path / "epoch"
    made.mkdir()
    (made / "weights").write_bytes(b"weights")
    written_before(made / "weights")
    written_before(made)
    made.rename(folder / "epoch")
    assert how_after_death(seen(folder, "epoch")) is WholeReason.MOVED_IN


def test_a_file_written_in_place_does_not(folder: Path) -> None:
    (folder / "made.pt").write_bytes(b"weig")
    assert how_after_death(seen(folder, "made.pt")) is None


def test_nor_one_that_was_renamed_and_then_written_to(tmp_path: Path, folder: Path) -> None:
    made = tmp_path / "made.pt"
    made.write_bytes(b"weights")
    written_before(made)
    made.rename(folder / "made.pt")
    with (folder / "made.pt").open("ab") as file:
        file.write(b"more")
    assert how_after_death(seen(folder, "made.pt")) is None


def test_whether_it_was_moved_does_not_make_it_another_checkpoint(folder: Path) -> None:
    (folder / "made.pt").write_bytes(b"weights")
    before = seen(folder, "made.pt")
    (folder / "made.pt").chmod(0o600)
    assert seen(folder, "made.pt") == before
