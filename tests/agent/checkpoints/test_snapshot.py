"""Test that a snapshot holds one state of a checkpoint, or is not made."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.agent.checkpoints.entries import zipped

from crucible.agent.checkpoints import snapshot, truncation
from crucible.agent.checkpoints.listing import CheckpointEntry, list_entries, read_entry
from crucible.agent.checkpoints.snapshot import Changed, Snapshotter, Torn
from crucible.wire.files.archive import unpack


@pytest.fixture
def photographer(tmp_path: Path) -> Snapshotter:
    (tmp_path / "checkpoints").mkdir()
    return Snapshotter(tmp_path / "checkpoints", tmp_path / "snapshots")


def entry(photographer: Snapshotter, name: str) -> CheckpointEntry:
    found = read_entry(photographer.folder, name)
    assert found is not None
    return found


def left(photographer: Snapshotter) -> list[Path]:
    return list(photographer.scratch.iterdir()) if photographer.scratch.exists() else []


def test_a_file_is_copied_with_its_hash(photographer: Snapshotter) -> None:
    path = photographer.folder / "a.bin"
    path.write_bytes(b"weights")
    taken = photographer.take(entry(photographer, "a.bin"), verify=True, copy=True)
    path.write_bytes(b"other weights")
    assert taken.path.read_bytes() == b"weights"
    assert (taken.size, taken.sha256) == (7, hashlib.sha256(b"weights").hexdigest())
    taken.remove()
    assert left(photographer) == []
    assert path.exists()


def test_after_the_end_a_file_is_sent_from_where_it_is(photographer: Snapshotter) -> None:
    path = photographer.folder / "a.bin"
    path.write_bytes(b"weights")
    taken = photographer.take(entry(photographer, "a.bin"), verify=True, copy=False)
    assert taken.path == path
    taken.remove()
    assert path.exists()


def test_a_folder_becomes_the_same_tar_whatever_its_times(photographer: Snapshotter, tmp_path: Path) -> None:
    for name, when in (("f", 1), ("g", 2)):
        inner = photographer.folder / name / "inner"
        (inner / "empty").mkdir(parents=True)
        (inner / "a").write_bytes(b"1")
        (inner / "b").symlink_to("a")
        os.utime(inner / "a", (when, when))
    taken = [photographer.take(entry(photographer, name), verify=True, copy=True) for name in ("f", "g")]
    assert taken[0].sha256 == taken[1].sha256
    with open(taken[0].path, "rb") as source:
        unpack(source, tmp_path / "out", max_bytes=1000, max_files=100, compressed=False)
    assert (tmp_path / "out" / "inner" / "b").read_bytes() == b"1"
    assert (tmp_path / "out" / "inner" / "empty").is_dir()


@pytest.mark.parametrize("name", ["file", "folder"])
def test_what_changed_since_it_was_whole_is_not_taken(photographer: Snapshotter, name: str) -> None:
    (photographer.folder / "folder").mkdir()
    (photographer.folder / "file").write_bytes(b"1")
    (photographer.folder / "folder" / "a").write_bytes(b"1")
    before = entry(photographer, name)
    changed = photographer.folder / ("file" if name == "file" else "folder/a")
    changed.write_bytes(b"22")
    with pytest.raises(Changed):
        photographer.take(before, verify=True, copy=True)
    changed.unlink()
    with pytest.raises(Changed):
        photographer.take(before, verify=True, copy=True)


def test_what_changes_while_it_is_copied_is_not_taken(
    photographer: Snapshotter, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photographer.folder / "folder").mkdir()
    for name in ("a.bin", "folder/a.bin"):
        (photographer.folder / name).write_bytes(b"weights")

    def write_on(file: BinaryIO, name: str) -> None:
        for path in ("a.bin", "folder/a.bin"):
            with open(photographer.folder / path, "ab") as more:
                more.write(b"more")

    monkeypatch.setattr(snapshot, "why_torn", write_on)
    monkeypatch.setattr(truncation, "why_torn", write_on)
    for name in ("a.bin", "folder"):
        with pytest.raises(Changed):
            photographer.take(entry(photographer, name), verify=True, copy=True)
    assert left(photographer) == []


def test_a_file_that_is_replaced_while_it_is_copied_is_taken_as_it_was(
    photographer: Snapshotter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = photographer.folder / "last.bin"
    path.write_bytes(b"weights")

    def replaced(file: BinaryIO, name: str) -> None:
        path.with_name(".new").write_bytes(b"later weights")
        os.replace(path.with_name(".new"), path)

    monkeypatch.setattr(snapshot, "why_torn", replaced)
    taken = photographer.take(entry(photographer, "last.bin"), verify=True, copy=True)
    assert taken.path.read_bytes() == b"weights"


def test_a_torn_file_is_not_taken_unless_it_was_noted(photographer: Snapshotter) -> None:
    (photographer.folder / "a.pt").write_bytes(zipped()[:-1])
    with pytest.raises(Torn, match="cut off"):
        photographer.take(entry(photographer, "a.pt"), verify=True, copy=True)
    assert photographer.take(entry(photographer, "a.pt"), verify=False, copy=True).size == len(zipped()) - 1


def test_links_that_lead_out_are_not_packed(photographer: Snapshotter) -> None:
    (photographer.folder / "f").mkdir()
    (photographer.folder / "f" / "a").write_bytes(b"1")
    (photographer.folder / "f" / "out").symlink_to("/etc/hostname")
    with pytest.raises(Torn, match="out"):
        photographer.take(entry(photographer, "f"), verify=True, copy=True)


def test_names_that_cannot_travel_are_not_taken(photographer: Snapshotter) -> None:
    (photographer.folder / "a\nb").write_bytes(b"1")
    with pytest.raises(Torn, match="control character"):
        photographer.take(entry(photographer, "a\nb"), verify=True, copy=True)


def test_what_an_earlier_runner_left_is_cleared(photographer: Snapshotter) -> None:
    photographer.scratch.mkdir()
    (photographer.scratch / "old").write_bytes(b"1")
    photographer.clear()
    assert left(photographer) == []


def test_the_listing_passes_over_what_is_no_checkpoint(photographer: Snapshotter) -> None:
    for name in (".hidden", "a.tmp", "b.part", "c.partial", "whole.pt"):
        (photographer.folder / name).write_bytes(b"1")
    (photographer.folder / "last.pt").symlink_to("whole.pt")
    os.mkfifo(photographer.folder / "pipe")
    (photographer.folder / "folder").mkdir()
    assert [found.name for found in list_entries(photographer.folder)] == ["folder", "whole.pt"]
    assert list_entries(photographer.folder / "absent") == ()
