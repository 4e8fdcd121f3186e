from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from crucible.core import errors as core_errors
from crucible.storage.errors import HashMismatch, NotFound, StorageError, StoreFull, translated
from crucible.storage.folder import STAGING
from crucible.storage.store import Content, ObjectStore, Store, Stored, open_store
from crucible.wire.paths import UnsafePath


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """What a Store promises holds on a local folder and on any other store of obstore."""
    return open_store(str(tmp_path / "store")) if request.param == "folder" else ObjectStore(MemoryStore())


def failing(error: Exception, *pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise error


def left_in_staging(root: Path) -> list[str]:
    return os.listdir(root / STAGING)


def test_what_is_put_can_be_got(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    contents: dict[str, Content] = {
        "a/bytes": b"abc",
        "a/path": tmp_path / "file",
        "a/pieces": iter([b"a", b"", b"bc"]),
    }
    for key, data in contents.items():
        assert store.put(key, data) == Stored(key, 3, hashlib.sha256(b"abc").hexdigest())
        assert store.get(key) == b"abc"
        assert store.size(key) == 3
    assert store.put("empty", b"") == Stored("empty", 0, hashlib.sha256(b"").hexdigest())
    assert store.get("empty") == b""


def test_a_put_replaces(store: Store) -> None:
    store.put("k", b"old and longer")
    store.put("k", b"new")
    assert store.get("k") == b"new"


def test_put_new_creates_and_never_replaces(store: Store) -> None:
    assert store.put_new("k", b"first") is True
    assert store.put_new("k", b"second") is False
    assert store.get("k") == b"first"


def test_of_many_put_new_at_once_one_wins(store: Store) -> None:
    barrier = threading.Barrier(8)

    def attempt(n: int) -> bool:
        barrier.wait(10)
        return store.put_new("deep/down/k", bytes([n]) * 10_000)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert won.count(True) == 1
    assert store.get("deep/down/k") == bytes([won.index(True)]) * 10_000


def test_readers_see_the_old_or_the_new_and_never_a_part(store: Store) -> None:
    versions = [bytes([n]) * 300_000 for n in range(6)]
    store.put("k", versions[0])

    def write() -> None:
        for _ in range(5):
            for version in versions:
                store.put("k", version)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        assert store.get("k") in versions
    writer.join()


@pytest.mark.parametrize("sort", ["put", "put_new"])
def test_a_torn_put_changes_nothing(sort: str, store: Store) -> None:
    store.put("old", b"kept")
    for key in ("old", "new") if sort == "put" else ("new",):
        with pytest.raises(KeyError):
            getattr(store, sort)(key, failing(KeyError("gone"), b"x" * 6_000_000, b"y"))
    assert store.get("old") == b"kept"
    assert list(store.list("")) == [("old", 4)]


def test_the_wrong_hash_changes_nothing(store: Store) -> None:
    right = hashlib.sha256(b"abc").hexdigest()
    assert store.put("k", b"abc", sha256=right).sha256 == right
    with pytest.raises(HashMismatch, match="not what was announced"):
        store.put("k", iter([b"ab", b"d"]), sha256=right)
    with pytest.raises(HashMismatch):
        store.put_new("new", b"abd", sha256=right)
    assert store.get("k") == b"abc"
    assert store.size("new") is None


def test_an_adopted_file_becomes_the_object_and_is_gone(store: Store, tmp_path: Path) -> None:
    store.put("a/k", b"old and longer")
    for key in ("a/k", "deep/down/new"):
        path = tmp_path / "arrived"
        path.write_bytes(b"abc")
        sha256 = hashlib.sha256(b"abc").hexdigest()
        assert store.adopt(key, path, sha256) == Stored(key, 3, sha256)
        assert (store.get(key), store.size(key)) == (b"abc", 3)
        assert not path.exists()


def test_a_missing_file_cannot_be_adopted(store: Store, tmp_path: Path) -> None:
    store.put("k", b"kept")
    with pytest.raises(FileNotFoundError, match="gone"):
        store.adopt("k", tmp_path / "gone", "0" * 64)
    assert store.get("k") == b"kept"


def test_what_is_not_there(store: Store) -> None:
    assert store.size("no/such") is None
    for read in (store.get, store.open_range, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(NotFound) as caught:
            read("no/such")
        assert caught.value.http_status == 404
    store.delete("no/such")
    assert list(store.list("no")) == []


def test_delete(store: Store) -> None:
    store.put("a/k", b"1")
    store.delete("a/k")
    assert store.size("a/k") is None
    assert store.put_new("a/k", b"2") is True


def test_list_goes_by_folders(store: Store) -> None:
    for key in ("a/1", "a/b/2", "ab/3", "c"):
        store.put(key, key.encode())
    assert sorted(store.list("a")) == [("a/1", 3), ("a/b/2", 5)]
    assert sorted(key for key, _ in store.list("")) == ["a/1", "a/b/2", "ab/3", "c"]


@pytest.mark.parametrize("key", ["", "/abs", "../up", "a/../b", "a//b", "a\\b", "a\x00", "k#1", f"{STAGING}/x"])
def test_unsafe_keys_are_refused_everywhere(key: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "arrived"
    path.write_bytes(b"")
    calls = (store.get, store.size, store.delete, store.open_range, lambda k: store.put(k, b""))
    adopt = lambda k: store.adopt(k, path, hashlib.sha256(b"").hexdigest())  # noqa: E731
    for call in (*calls, adopt, lambda k: store.put_new(k, b""), lambda k: store.get_range(k, 0, 1)):
        with pytest.raises(UnsafePath):
            call(key)
    assert path.exists()


DATA = bytes(range(256)) * 20


@settings(max_examples=80, deadline=None)
@given(start=st.integers(0, 6000), length=st.integers(0, 6000), chunk=st.integers(1, 3000))
def test_ranges_are_slices(start: int, length: int, chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    for store in (open_store(str(tmp_path_factory.getbasetemp() / "ranges")), ObjectStore(MemoryStore())):
        store.put("k", DATA)
        assert store.get_range("k", start, length) == DATA[start : start + length]
        assert b"".join(store.open_range("k", start, start + length, chunk)) == DATA[start : start + length]
        assert b"".join(store.open_range("k", start)) == DATA[start:]


def test_reading_goes_on_after_the_object_is_replaced_or_deleted(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", b"a" * 3_000_000)
    reading = store.open_range("k", chunk=100_000)
    first = next(reading)
    store.put("k", b"b")
    store.delete("k")
    assert first + b"".join(reading) == b"a" * 3_000_000


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


# On a local folder


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


def test_a_store_is_opened_by_path_or_url(tmp_path: Path) -> None:
    open_store(str(tmp_path / "new/sto re")).put("k", b"1")
    assert open_store((tmp_path / "new/sto re").as_uri()).get("k") == b"1"
    assert open_store(f"file://localhost{tmp_path}/new/sto%20re").get("k") == b"1"


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://b", "memory://", "https://host/x", "file://host/x"])
def test_other_schemes_are_refused_with_what_works(url: str) -> None:
    with pytest.raises(StorageError, match="file:///path"):
        open_store(url)


def test_a_store_where_a_file_is_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        open_store(str(tmp_path / "file"))


def test_an_error_names_the_key_and_one_line_of_the_cause() -> None:
    with pytest.raises(StorageError) as caught, translated("some/key"):
        raise OSError(errno.EIO, "Input/output error")
    assert caught.value.data["key"] == "some/key"
    assert "Input/output error" in caught.value.why
    assert "\n" not in str(caught.value)
