from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore
from tests.storage.conformance import StoreContract, failing

from crucible.core import errors as core_errors
from crucible.storage.errors import NoSuchStore, StorageError, StoreFull
from crucible.storage.folder import STAGING
from crucible.storage.objects import ObjectStore
from crucible.storage.open_store import open_store
from crucible.storage.store import Signs, Store
from crucible.wire.files.paths import UnsafePath


class TestFolder(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "store"))


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return ObjectStore(MemoryStore())


def left_in_staging(root: Path) -> list[str]:
    return os.listdir(root / STAGING)


def test_neither_signs_urls(tmp_path: Path) -> None:
    assert not isinstance(open_store(str(tmp_path)), Signs)


DATA = bytes(range(256)) * 20


@settings(max_examples=80, deadline=None)
@given(start=st.integers(0, 6000), length=st.integers(0, 6000), chunk=st.integers(1, 3000))
def test_ranges_are_slices(start: int, length: int, chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    for store in (open_store(str(tmp_path_factory.getbasetemp() / "ranges")), ObjectStore(MemoryStore())):
        store.put("k", DATA)
        assert store.get_range("k", start, length) == DATA[start : start + length]
        assert b"".join(store.open_range("k", start, start + length, chunk)) == DATA[start : start + length]
        assert b"".join(store.open_range("k", start)) == DATA[start:]


@settings(max_examples=60, deadline=None)
@given(key=st.text(min_size=1, max_size=60))
def test_a_key_is_refused_or_works(key: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    for store in (open_store(str(tmp_path_factory.mktemp("key"))), ObjectStore(MemoryStore())):
        try:
            store.put(key, b"x")
        except UnsafePath:
            return
        assert store.get(key) == b"x"
        assert list(store.list("")) == [(key, 1)]


@pytest.mark.parametrize("key", ["0A:", "a/b/c0c:"])
def test_what_ends_like_a_drive_is_no_key(key: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePath, match="drive"):
        open_store(str(tmp_path)).put(key, b"x")
    open_store(str(tmp_path)).put(key + "x", b"x")


# On a local folder


def test_reading_goes_on_after_the_object_is_replaced_or_deleted(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", b"a" * 3_000_000)
    reading = store.open_range("k", chunk=100_000)
    first = next(reading)
    store.put("k", b"b")
    store.delete("k")
    assert first + b"".join(reading) == b"a" * 3_000_000


def test_a_large_object_is_streamed_in_pieces(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", iter([b"x" * 1_000_000] * 9))
    pieces = list(store.open_range("k", 1, chunk=500_000))
    assert sum(map(len, pieces)) == 8_999_999
    assert max(map(len, pieces)) < 2_000_000


def test_the_disk_being_full_is_told_apart_and_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for sort in (store.put, store.put_new):
        with pytest.raises(StoreFull) as caught:
            sort("k", failing(OSError(errno.ENOSPC, "No space left on device"), b"x"))
        assert isinstance(caught.value, core_errors.DiskFull)
        assert "Free some space" in caught.value.fix
    assert store.size("k") is None
    assert left_in_staging(tmp_path) == []


def test_nothing_is_left_in_staging(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a", b"1")
    store.put_new("a", b"2")
    store.put_new("b", iter([b"2"]))
    with pytest.raises(KeyError):
        store.put("a", failing(KeyError("x"), b"1"))
    for sort in (store.put, store.put_new):
        with pytest.raises(StorageError):
            sort("a/below", b"1")
    assert left_in_staging(tmp_path) == []


def test_what_a_crash_left_is_invisible_and_removed_after_a_day(tmp_path: Path) -> None:
    open_store(str(tmp_path))
    fresh, old = (tmp_path / STAGING / name for name in ("fresh#1", "old#1"))
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store = open_store(str(tmp_path))
    assert list(store.list("")) == []
    assert left_in_staging(tmp_path) == ["fresh#1"]


def test_stored_files_are_ours_alone(tmp_path: Path) -> None:
    open_store(str(tmp_path)).put("a/k", b"1")
    assert (tmp_path / "a/k").stat().st_mode & 0o777 == 0o600


def test_a_missing_source_is_not_a_missing_object(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        open_store(str(tmp_path)).put("k", tmp_path / "gone")


def test_adoption_moves_the_file_itself(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    path = tmp_path / "arrived"
    path.write_bytes(b"abc")
    path.chmod(0o644)
    inode = path.stat().st_ino
    store.adopt("a/k", path, hashlib.sha256(b"abc").hexdigest())
    found = (tmp_path / "store/a/k").stat()
    assert (found.st_ino, found.st_mode & 0o777) == (inode, 0o600)
    assert left_in_staging(tmp_path / "store") == []


def test_adoption_copies_from_another_file_system(tmp_path: Path, other_disk: Path) -> None:
    store = open_store(str(tmp_path))
    path = other_disk / "arrived"
    path.write_bytes(b"x" * 3_000_000)
    store.put("a/k", b"old")
    assert store.adopt("a/k", path, "unchecked").size == 3_000_000
    assert store.get("a/k") == b"x" * 3_000_000
    assert not path.exists()
    assert left_in_staging(tmp_path) == []


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_what_cannot_be_adopted_stays_where_it_is(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    store.put("a", b"1")
    path, link = tmp_path / "arrived", tmp_path / "link"
    path.write_bytes(b"abc")
    link.symlink_to(path)
    with pytest.raises(StorageError):
        store.adopt("a/below", path, "unchecked")
    with pytest.raises(StorageError):
        store.adopt("b", link, "unchecked")
    assert path.read_bytes() == b"abc"
    assert list(store.list("")) == [("a", 1)]


def test_free_bytes(tmp_path: Path) -> None:
    assert (open_store(str(tmp_path)).free_bytes() or 0) > 0
    assert ObjectStore(MemoryStore()).free_bytes() is None


@pytest.mark.parametrize("write", ["put", "put_new", "adopt"])
def test_a_folder_that_is_gone_is_not_made_anew(tmp_path: Path, write: str) -> None:
    """Not even by a file that is moved in; and a folder at its place is not taken for it."""
    state = tmp_path / "state"
    store = open_store(str(state / "store"))
    store.check()
    store.put("a/b", b"1")
    shutil.rmtree(state)
    arrived = tmp_path / "arrived"
    arrived.write_bytes(b"2")
    more = (arrived, "unchecked") if write == "adopt" else (b"2",)
    for _ in range(2):
        with pytest.raises(NoSuchStore, match="not there any more"):
            getattr(store, write)("a/c", *more)
        with pytest.raises(NoSuchStore):
            store.check()
        assert list(state.rglob("*")) in ([], [state / "store"])
        (state / "store").mkdir(parents=True, exist_ok=True)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root, who runs tests, may do everything
    with pytest.raises(StorageError, match="cannot be written"):
        store.check()
