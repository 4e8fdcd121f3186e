"""Checkpoints appear whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crucible.inside import checkpoint


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_with_a_step(job: Path) -> None:
    path = checkpoint.save(b"weights", step=5, metric=0.25)
    assert path == job / "checkpoints" / "step-00000005"
    assert path.read_bytes() == b"weights"
    assert json.loads((job / "report.jsonl").read_text()) == {
        "crucible": 1,
        "checkpoint": "step-00000005",
        "step": 5,
        "metric": 0.25,
        "inode": path.stat().st_ino,
        "mtime_ns": path.stat().st_mtime_ns,
    }


def test_a_folder_is_noted_as_it_is(job: Path) -> None:
    def folder(path: Path) -> None:
        path.mkdir()
        (path / "a").write_text("1")

    path = checkpoint.save(folder, name="last")
    noted = json.loads((job / "report.jsonl").read_text())
    assert (noted["checkpoint"], noted["step"], noted["metric"]) == ("last", None, None)
    assert (noted["inode"], noted["mtime_ns"]) == (path.stat().st_ino, path.stat().st_mtime_ns)


def test_a_step_may_be_any_kind_of_whole_number(job: Path) -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    assert checkpoint.save(b"x", step=Seven()).name == "step-00000007"
    assert json.loads((job / "report.jsonl").read_text())["step"] == 7


def test_off_platform_it_goes_to_the_working_directory(off_platform: Path) -> None:
    path = checkpoint.save(b"weights", step=5)
    assert path.resolve() == off_platform / "checkpoints" / "step-00000005"
    assert names(off_platform) == ["checkpoints"]


def test_a_file_is_copied_with_its_suffix(job: Path) -> None:
    (job / "model.pt").write_bytes(b"weights")
    assert checkpoint.save(job / "model.pt", step=1).name == "step-00000001.pt"
    assert checkpoint.save(str(job / "model.pt"), name="best.pt").read_bytes() == b"weights"
    assert (job / "model.pt").exists()


def test_a_function_may_write_a_file_or_a_folder(job: Path) -> None:
    def folder(path: Path) -> None:
        (path / "inner").mkdir(parents=True)
        (path / "inner" / "a").write_text("1")

    assert checkpoint.save(lambda path: path.write_text("1"), step=1).read_text() == "1"
    assert (checkpoint.save(folder, step=2) / "inner" / "a").read_text() == "1"
    assert checkpoint.save(job / "checkpoints" / "step-00000002", name="copy").is_dir()


def test_a_name_is_replaced_file_by_folder_and_back(job: Path) -> None:
    checkpoint.save(b"old", name="last")
    checkpoint.save(lambda path: path.mkdir(), name="last")
    (job / "checkpoints" / "last" / "left").touch()
    checkpoint.save(lambda path: path.mkdir(), name="last")
    assert names(job / "checkpoints" / "last") == []
    assert checkpoint.save(b"new", name="last").read_bytes() == b"new"
    assert names(job / "checkpoints") == ["last"]


def test_a_failed_save_leaves_the_old_one_and_nothing_else(job: Path) -> None:
    checkpoint.save(b"old", name="last")

    def half(path: Path) -> None:
        path.write_bytes(b"ha")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        checkpoint.save(half, name="last")
    with pytest.raises(FileNotFoundError, match="wrote nothing"):
        checkpoint.save(lambda path: None, name="last")
    assert names(job / "checkpoints") == ["last"]
    assert (job / "checkpoints" / "last").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["../out", "a/b", ".hidden", "/abs", "a\0b", "a.tmp", "b.part", "c.partial"])
def test_a_name_is_a_plain_file_name(job: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        checkpoint.save(b"x", name=name)


def test_an_object_is_refused_with_the_way_out(job: Path) -> None:
    with pytest.raises(TypeError, match=r"torch\.save"):
        checkpoint.save({"weights": [1]})  # type: ignore[arg-type]
    assert names(job / "checkpoints") == []


def test_latest_is_the_newest_whole_one(job: Path) -> None:
    assert checkpoint.latest() is None
    checkpoint.save(b"1", step=2)
    newest = checkpoint.save(b"2", step=1)
    os.utime(newest, ns=(time.time_ns(), time.time_ns() + 10**9))
    (checkpoint.dir() / ".step-3.99.tmp").write_bytes(b"half")
    (checkpoint.dir() / "step-4.partial").write_bytes(b"half")
    assert checkpoint.latest() == newest


def test_latest_of_a_new_attempt_is_what_to_resume_from(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / "given").write_bytes(b"earlier")
    monkeypatch.setenv("CRUCIBLE_RESUME_FROM", str(job / "given"))
    assert checkpoint.latest() == job / "given"
    assert checkpoint.latest() != checkpoint.save(b"own")
    assert checkpoint.latest() != job / "given"


def test_killed_at_any_moment_every_visible_checkpoint_is_whole(job: Path) -> None:
    code = (
        "from crucible.inside import checkpoint\n"
        "for i in range(100000): checkpoint.save(bytes([i % 256]) * 200000, name='last')"
    )
    last = job / "checkpoints" / "last"
    for delay in (0.0, 0.003, 0.011, 0.02):
        process = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 30
        while not last.exists() and time.monotonic() < deadline:
            os.sched_yield()
        until = time.monotonic() + delay
        while time.monotonic() < until:
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        data = last.read_bytes()
        assert len(data) == 200000
        assert len(set(data)) == 1
        last.unlink()
