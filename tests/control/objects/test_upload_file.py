from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest

from crucible.control.objects.upload_file import UploadFile
from crucible.core.errors import DiskFull, Trouble


class Disk:
    """Makes one file, which writes as `how` says: the bytes and what really writes them are given to it."""

    def __init__(self, folder: Path, how: Callable[[memoryview, Callable[[memoryview], int]], int]) -> None:
        self.path = folder / "arriving"
        self._how = how
        self.file: FileIO | None = None

    def make(self) -> tuple[FileIO, Path]:
        self.file = OddFile(self.path, self._how)
        return self.file, self.path


class OddFile(FileIO):
    def __init__(self, path: Path, how: Callable[[memoryview, Callable[[memoryview], int]], int]) -> None:
        super().__init__(path, "wb")
        self._how = how

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        return self._how(data, super().write)


def plain(data: memoryview, write: Callable[[memoryview], int]) -> int:
    return write(data)


def few_bytes(data: memoryview, write: Callable[[memoryview], int]) -> int:
    return write(data[:3])


@pytest.mark.parametrize("how", [plain, few_bytes])
def test_it_is_written_whole_however_little_a_write_takes(tmp_path: Path, how: object) -> None:
    disk = Disk(tmp_path, how)  # type: ignore[arg-type]
    file = UploadFile(disk.make)
    file.write([b"0123456789", b""])
    file.write([b"ab", b"c" * 10])
    data = b"0123456789ab" + b"c" * 10
    assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert file.hand_over(lambda path: path.read_bytes()) == data


def test_it_can_be_empty(tmp_path: Path) -> None:
    file = UploadFile(Disk(tmp_path, plain).make)
    file.write([])
    assert file.sha256 == hashlib.sha256(b"").hexdigest()
    assert file.hand_over(lambda path: path.stat().st_size) == 0


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, Trouble)])
def test_failures_of_the_disk_are_told_with_a_fix(tmp_path: Path, number: int, kind: type[Trouble]) -> None:
    def fail(data: memoryview, write: Callable[[memoryview], int]) -> int:
        raise OSError(number, os.strerror(number))

    disk = Disk(tmp_path, fail)
    file = UploadFile(disk.make)
    with pytest.raises(Trouble) as raised:
        file.write([b"x"])
    assert type(raised.value) is kind
    assert os.strerror(number) in raised.value.why
    assert raised.value.fix
    assert file.abandon()
    file.remove()
    assert not disk.path.exists()


def test_what_was_taken_is_not_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, plain)
    file = UploadFile(disk.make)
    file.write([b"x"])
    file.hand_over(lambda path: path.rename(tmp_path / "taken"))
    assert not file.abandon()
    assert (tmp_path / "taken").read_bytes() == b"x"


def test_what_could_not_be_taken_is_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, plain)
    file = UploadFile(disk.make)
    file.write([b"x"])
    with pytest.raises(Trouble):
        file.hand_over(lambda path: path.rename(tmp_path / "no/such/folder"))
    assert file.abandon()
    file.remove()
    assert not disk.path.exists()


def test_nothing_is_made_for_an_upload_that_was_given_up(tmp_path: Path) -> None:
    disk = Disk(tmp_path, plain)
    file = UploadFile(disk.make)
    assert not file.abandon()
    with pytest.raises(Trouble, match="given up"):
        file.write([b"x"])
    assert disk.file is None


def test_a_write_under_way_ends_before_the_file_is_closed(tmp_path: Path) -> None:
    begun, go, written = threading.Event(), threading.Event(), list[int]()

    def slow(data: memoryview, write: Callable[[memoryview], int]) -> int:
        begun.set()
        assert go.wait(10)
        written.append(write(data))
        return written[-1]

    disk = Disk(tmp_path, slow)
    file = UploadFile(disk.make)
    thread = threading.Thread(target=file.write, args=([b"late"],))
    thread.start()
    assert begun.wait(10)
    assert not file.abandon(), "the thread removes it"
    assert disk.file is not None
    assert not disk.file.closed
    go.set()
    thread.join(10)
    assert written == [4], "into its own file, whose descriptor nobody else could have got"
    assert disk.file.closed
    assert not disk.path.exists()
