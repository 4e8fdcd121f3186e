from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.agent.waiting import poll

from crucible.agent.runner import work_files
from crucible.agent.runner.work_files import StagedFiles, matches


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def write(folder: Path, *names: str, text: str = "new") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def changed(staged: StagedFiles) -> list[str]:
    found = staged.changed(100)
    assert (found.others, found.is_whole) == (0, True)
    return sorted(file.name for file in found.files)


def test_what_was_staged_is_no_output(work: Path) -> None:
    write(work, "main.py", "pkg/mod.py")
    staged = StagedFiles.scan(work)
    (work / "main.py").read_text()
    (work / "pkg/mod.py").unlink()
    assert changed(staged) == []


def test_new_and_changed_files_are_outputs(work: Path) -> None:
    write(work, "main.py", "config.json")
    staged = StagedFiles.scan(work)
    write(work, "config.json", "runs/a.log", "ba\nd", text="other text")
    assert changed(staged) == ["ba\nd", "config.json", "runs/a.log"]


def test_the_state_before_the_job_ran_is_kept_in_a_file(work: Path, tmp_path: Path) -> None:
    write(work, "main.py", os.fsdecode(b"caf\xe9"))
    StagedFiles.scan(work).write(tmp_path / "staged.json")
    write(work, "model.pt")
    staged = StagedFiles.read(tmp_path / "staged.json")
    assert staged is not None
    assert changed(staged) == ["model.pt"]
    assert StagedFiles.read(tmp_path / "absent.json") is None


def test_the_smallest_files_come_first_and_stay(work: Path) -> None:
    staged = StagedFiles.scan(work)
    for name, size in (("big", 100), ("small", 1), ("middle", 10)):
        write(work, name, text="x" * size)
    found = staged.changed(2)
    assert [file.name for file in found.files] == ["small", "middle"]
    assert found.others == 1


def test_caches_environments_and_core_dumps_are_no_outputs(work: Path) -> None:
    staged = StagedFiles.scan(work)
    write(
        work, "__pycache__/x.bin", "pkg/x.pyc", ".cache/x", ".pytest_cache/x", ".git/index", "env/pyvenv.cfg", "env/x"
    )
    write(work, "hub/CACHEDIR.TAG", text="Signature: 8a477f597d28d172789f06886806bc55\n")
    write(work, "hub/model.bin")
    (work / "core.123").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00")
    write(work, "core", "core.py", "tagless/CACHEDIR.TAG")
    assert changed(staged) == ["core", "core.py", "tagless/CACHEDIR.TAG"]


def test_links_out_pipes_and_folders_that_are_linked_are_no_outputs(work: Path) -> None:
    staged = StagedFiles.scan(work)
    write(work, "ckpt/5.pt")
    (work / "out").symlink_to("/etc")
    (work / "host").symlink_to("/etc/hostname")
    (work / "nowhere").symlink_to("nothing")
    (work / "folder").symlink_to("ckpt")
    (work / "newest.pt").symlink_to("ckpt/5.pt")
    os.mkfifo(work / "pipe")
    assert changed(staged) == ["ckpt/5.pt", "newest.pt"]


def test_a_huge_folder_is_searched_in_part(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_files, "MAX_ENTRIES", 5)
    write(work, *(f"d{number}" for number in range(10)))
    staged = StagedFiles.scan(work)
    assert staged.changed(100) == work_files.ChangedFiles((), 0, False)

    def is_found() -> bool:
        """Write files until their time, which is coarse, is later than that of the newest staged one."""
        write(work, *(f"a{number}" for number in range(10)))
        return len(staged.changed(100).files) == 5

    poll(is_found)


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("*", {"a.pt", "runs/1/b.pt", "runs/1/log.csv"}),
        ("*.pt", {"a.pt", "runs/1/b.pt"}),
        ("runs", {"runs/1/b.pt", "runs/1/log.csv"}),
        ("runs/", {"runs/1/b.pt", "runs/1/log.csv"}),
        ("./runs/1", {"runs/1/b.pt", "runs/1/log.csv"}),
        ("runs/*.csv", {"runs/1/log.csv"}),
        ("1/log.csv", set()),
    ],
)
def test_what_a_pattern_chooses(pattern: str, chosen: set[str]) -> None:
    assert {name for name in ("a.pt", "runs/1/b.pt", "runs/1/log.csv") if matches(name, pattern)} == chosen


def test_only_files_that_match_a_pattern_are_outputs(work: Path) -> None:
    staged = StagedFiles.scan(work)
    write(work, "a.pt", "b.csv", "c.txt")
    assert sorted(file.name for file in staged.changed(10, ("*.pt", "b*")).files) == ["a.pt", "b.csv"]
    assert staged.changed(10, ()).files == ()
