from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from tests.agent.waiting import poll

from crucible.agent.runner import leftovers
from crucible.agent.runner.leftovers import FolderBaseline, empty_folders_note


def write(folder: Path, *names: str, text: str = "new") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_nothing_is_said_of_what_was_there(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "pkg/mod.py")
    staged = FolderBaseline.take(tmp_path)
    (tmp_path / "main.py").read_text()
    (tmp_path / "pkg/mod.py").unlink()
    assert staged.note() is None


def test_new_and_changed_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "config.json")
    staged = FolderBaseline.take(tmp_path)
    write(tmp_path, "config.json", "runs/a.log", text="other text")
    assert staged.note() == (
        "2 files written to the working directory were not kept: config.json, runs/a.log. "
        "Write them to $CRUCIBLE_OUTPUT_DIR."
    )
    write(tmp_path, "model.txt", "runs/b.log", "ba\nd")
    note = staged.note()
    assert note is not None
    assert note.startswith("5 files")
    assert "not kept: 'ba\\nd', config.json, model.txt, …. Write" in note


def test_one_file(tmp_path: Path) -> None:
    staged = FolderBaseline.take(tmp_path)
    write(tmp_path, "model.txt")
    assert staged.note() == (
        "1 file written to the working directory was not kept: model.txt. Write it to $CRUCIBLE_OUTPUT_DIR."
    )


def test_what_programs_leave_and_links_are_passed_over(tmp_path: Path) -> None:
    staged = FolderBaseline.take(tmp_path)
    write(tmp_path, "__pycache__/x.bin", "pkg/x.pyc", ".cache/x", ".pytest_cache/x", ".git/index")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "latest").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    assert staged.note() is None


def test_a_huge_folder_is_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "MAX_ENTRIES", 5)
    write(tmp_path, *(f"d/{number}" for number in range(10)))
    staged = FolderBaseline.take(tmp_path)
    assert not staged.is_whole
    assert staged.note() is None

    def is_said() -> bool:
        """Write the file again until its time, which is coarse, is later than the scan."""
        write(tmp_path, *(f"a{number}" for number in range(10)))
        return (staged.note() or "").startswith("at least 5 files written")

    poll(is_said)


def test_a_slow_folder_is_looked_at_in_part(tmp_path: Path) -> None:
    staged = FolderBaseline.take(tmp_path)
    write(tmp_path, "a", "b", "c", "d")
    ticks = itertools.count(0.0, 0.4)
    note = staged.note(lambda: next(ticks))
    assert note is not None
    assert note.startswith("at least 2 files")


def test_empty_folders_among_the_outputs(tmp_path: Path) -> None:
    assert empty_folders_note(tmp_path) is None
    assert empty_folders_note(tmp_path / "absent") is None
    write(tmp_path, "full/x")
    (tmp_path / "bare").mkdir()
    assert empty_folders_note(tmp_path) == "1 empty folder was not kept with the outputs: bare."
    (tmp_path / "full/deep").mkdir()
    note = empty_folders_note(tmp_path)
    assert note == "2 empty folders were not kept with the outputs: bare, full/deep."
