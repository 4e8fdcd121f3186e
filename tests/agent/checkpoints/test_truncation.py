"""Test that a file truncated at any byte is recognized as truncated."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from tests.agent.checkpoints.entries import KNOWN, hdf5, safetensors, tarred, zipped

from crucible.agent.checkpoints.listing import read_entry
from crucible.agent.checkpoints.truncation import why_folder_torn, why_torn


def judge(path: Path) -> str | None:
    entry = read_entry(path.parent, path.name)
    assert entry is not None
    if entry.is_folder:
        return why_folder_torn(path, entry)
    with open(path, "rb") as file:
        return why_torn(file, path.name)


@pytest.mark.parametrize("name", KNOWN)
def test_whole_files_are_whole(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(KNOWN[name])
    assert judge(tmp_path / name) is None


@pytest.mark.parametrize("name", KNOWN)
def test_torn_at_every_byte(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    second_member = KNOWN[name].rfind(b"\x1f\x8b") if name.endswith(".gz") else None
    path.write_bytes(KNOWN[name])
    for size in reversed(range(len(KNOWN[name]))):
        os.truncate(path, size)
        whole = size == second_member  # what is left is a whole file of one member
        assert (judge(path) is None) is whole, f"cut at {size}"


def test_a_tar_is_torn_before_its_end(tmp_path: Path) -> None:
    whole, path = tarred(), tmp_path / "a.tar"
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        end = max(member.offset_data + 512 * -(-member.size // 512) for member in tar)
    for size in [*range(0, end + 1024, 7), end, end + 512, end + 1023]:
        path.write_bytes(whole[:size])
        assert judge(path) is not None, f"cut at {size}"
    path.write_bytes(whole[: end + 1024])
    assert judge(path) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("preallocated.pt", zipped()[:300] + b"\0" * (len(zipped()) - 300)),
        ("half-new.pt", b"PK\x03\x04" + b"new" * 40 + zipped()[124:-40]),
        ("more.pt", zipped() + b"x"),
        ("more.safetensors", safetensors() + b"x"),
        ("text.safetensors", b"not at all"),
        ("open.h5", hdf5(3)[:11] + b"\1" + hdf5(3)[12:]),
        ("growing.h5", hdf5() + b"more"),
        ("other.npz", b"something else"),
        ("list.json", b"[1, 2"),
        ("bytes.json", b"\xff\xfe\xfa"),
        ("damaged.gz", KNOWN["state.pkl.gz"][:30] + b"?" + KNOWN["state.pkl.gz"][31:]),
        ("empty.bin", b""),
    ],
)
def test_other_kinds_of_damage(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert judge(tmp_path / name) is not None


@pytest.mark.parametrize("name", ["weights.bin", "state.pkl", "model.pt", "notes.txt"])
def test_nothing_speaks_against_an_unknown_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04anything")
    assert judge(tmp_path / name) is None


def test_a_folder_is_whole_if_each_of_its_files_is(tmp_path: Path) -> None:
    inner = tmp_path / "checkpoint-5" / "inner"
    inner.mkdir(parents=True)
    assert judge(inner.parent) == "there is no file in it"
    (inner / "model.safetensors").write_bytes(safetensors())
    (inner.parent / "weights.bin").write_bytes(b"anything")
    assert judge(inner.parent) is None
    (inner / "model.safetensors").write_bytes(safetensors()[:-1])
    assert judge(inner.parent) == "inner/model.safetensors: it is cut off"
    (inner / "model.safetensors").write_bytes(b"")
    assert judge(inner.parent) == "inner/model.safetensors: it is empty"
