"""What every Store promises. A store's own test file subclasses StoreContract and gives it a `store`."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crucible.storage.errors import HashMismatch, NotFound, StorageError
from crucible.storage.folder import STAGING
from crucible.storage.store import Content, Store, Stored
from crucible.wire.files.paths import UnsafePath

ABC = hashlib.sha256(b"abc").hexdigest()
LARGE = 20_000_000
"""More than any store moves by one request."""


def failing(error: Exception, *pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise error


class StoreContract:
    def test_a_store_that_works_is_fine(self, store: Store) -> None:
        store.check()
        assert list(store.list("")) == []

    def test_what_is_put_can_be_got(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"abc")
        contents: dict[str, Content] = {
            "a/bytes": b"abc",
            "a/path": tmp_path / "file",
            "a/pieces": iter([b"a", b"", b"bc"]),
        }
        for key, data in contents.items():
            assert store.put(key, data) == Stored(key, 3, ABC)
            assert store.get(key) == b"abc"
            assert store.size(key) == 3
        assert store.put("empty", b"") == Stored("empty", 0, hashlib.sha256(b"").hexdigest())
        assert store.get("empty") == b""
        assert list(store.open_range("empty")) == []

    @pytest.mark.parametrize("form", ["bytes", "path", "pieces"])
    def test_large_content(self, form: str, store: Store, tmp_path: Path) -> None:
        data = bytes(range(250)) * (LARGE // 250)
        (tmp_path / "file").write_bytes(data)
        pieces = (data[at : at + 999_999] for at in range(0, LARGE, 999_999))
        content: Content = {"bytes": data, "path": tmp_path / "file", "pieces": pieces}[form]
        sha256 = hashlib.sha256(data).hexdigest()
        assert store.put("k", content, sha256=sha256) == Stored("k", LARGE, sha256)
        assert store.get("k") == data
        assert b"".join(store.open_range("k", 1_000, LARGE - 1_000, chunk=300_000)) == data[1_000:-1_000]

    def test_a_put_replaces(self, store: Store) -> None:
        store.put("k", b"old and longer")
        store.put("k", b"new")
        assert store.get("k") == b"new"

    @pytest.mark.parametrize("size", [5, LARGE])
    def test_put_new_creates_and_never_replaces(self, size: int, store: Store) -> None:
        assert store.put_new("k", b"1" * size) is True
        assert store.put_new("k", b"2" * size) is False
        assert store.get("k") == b"1" * size
        assert list(store.list("")) == [("k", size)]

    @pytest.mark.parametrize("size", [10_000, 9_000_000])
    def test_of_many_put_new_at_once_one_wins(self, size: int, store: Store) -> None:
        barrier = threading.Barrier(4)

        def attempt(n: int) -> bool:
            barrier.wait(30)
            return store.put_new("deep/down/k", bytes([n]) * size)

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert won.count(True) == 1
        assert store.get("deep/down/k") == bytes([won.index(True)]) * size
        assert list(store.list("")) == [("deep/down/k", size)]

    def test_readers_see_the_old_or_the_new_and_never_a_part(self, store: Store) -> None:
        versions = [bytes([n]) * 300_000 for n in range(6)]
        store.put("k", versions[0])

        def write() -> None:
            for _ in range(3):
                for version in versions:
                    store.put("k", version)

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            assert store.get("k") in versions
        writer.join()

    @pytest.mark.parametrize("size", [10, LARGE])
    @pytest.mark.parametrize("sort", ["put", "put_new"])
    def test_a_torn_put_changes_nothing(self, sort: str, size: int, store: Store) -> None:
        store.put("old", b"kept")
        for key in ("old", "new") if sort == "put" else ("new",):
            with pytest.raises(KeyError):
                getattr(store, sort)(key, failing(KeyError("gone"), b"x" * size, b"y"))
        assert store.get("old") == b"kept"
        assert list(store.list("")) == [("old", 4)]

    @pytest.mark.parametrize("size", [10, LARGE])
    def test_the_wrong_hash_changes_nothing(self, size: int, store: Store) -> None:
        assert store.put("k", b"abc", sha256=ABC).sha256 == ABC
        with pytest.raises(HashMismatch, match="does not have the expected hash"):
            store.put("k", iter([b"ab", b"d" * size]), sha256=ABC)
        for sort in (store.put, store.put_new):
            with pytest.raises(HashMismatch):
                sort("new", b"d" * size, sha256=ABC)
        assert store.get("k") == b"abc"
        assert store.size("new") is None
        assert list(store.list("")) == [("k", 3)]

    def test_an_adopted_file_becomes_the_object_and_is_gone(self, store: Store, tmp_path: Path) -> None:
        store.put("a/k", b"old and longer")
        for key in ("a/k", "deep/down/new"):
            path = tmp_path / "arrived"
            path.write_bytes(b"abc")
            assert store.adopt(key, path, ABC) == Stored(key, 3, ABC)
            assert (store.get(key), store.size(key)) == (b"abc", 3)
            assert not path.exists()

    def test_a_missing_file_cannot_be_adopted(self, store: Store, tmp_path: Path) -> None:
        store.put("k", b"kept")
        with pytest.raises(FileNotFoundError, match="gone"):
            store.adopt("k", tmp_path / "gone", "0" * 64)
        assert store.get("k") == b"kept"

    def test_what_is_not_there(self, store: Store) -> None:
        assert store.size("no/such") is None
        for read in (store.get, store.open_range, lambda key: store.get_range(key, 0, 1)):
            with pytest.raises(NotFound) as caught:
                read("no/such")
            assert caught.value.http_status == 404
        assert list(store.list("no")) == []

    def test_deleting_twice_is_fine(self, store: Store) -> None:
        store.put("a/k", b"1")
        store.delete("a/k")
        store.delete("a/k")
        assert store.size("a/k") is None
        assert store.put_new("a/k", b"2") is True

    def test_list_goes_by_folders(self, store: Store) -> None:
        for key in ("a/1", "a/b/2", "ab/3", "c"):
            store.put(key, key.encode())
        assert sorted(store.list("a")) == [("a/1", 3), ("a/b/2", 5)]
        assert sorted(key for key, _ in store.list("")) == ["a/1", "a/b/2", "ab/3", "c"]

    @pytest.mark.parametrize("key", ["a b+c", "é%41", "a%2Fb", "x=y&z?", "~t'*", ".hidden/.k", "☃", "a" * 200])
    def test_odd_keys_are_kept_as_they_are(self, key: str, store: Store) -> None:
        store.put(key, b"x")
        assert store.get(key) == b"x"
        assert list(store.list("")) == [(key, 1)]
        store.delete(key)
        assert store.size(key) is None

    @pytest.mark.parametrize("key", ["", "/abs", "../up", "a/../b", "a//b", "a\\b", "a\x00", "k#1", f"{STAGING}/x"])
    def test_unsafe_keys_are_refused_everywhere(self, key: str, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "arrived"
        path.write_bytes(b"")
        calls = (store.get, store.size, store.delete, store.open_range, lambda k: store.put(k, b""))
        adopt = lambda k: store.adopt(k, path, hashlib.sha256(b"").hexdigest())  # noqa: E731
        for call in (*calls, adopt, lambda k: store.put_new(k, b""), lambda k: store.get_range(k, 0, 1)):
            with pytest.raises(UnsafePath):
                call(key)
        assert path.exists()

    def test_ranges_are_slices(self, store: Store) -> None:
        data = bytes(range(256)) * 20
        store.put("k", data)
        for start, length in ((0, 10), (5_119, 1), (5_119, 10), (5_120, 1), (9_000, 5), (100, 0), (0, 9_000)):
            assert store.get_range("k", start, length) == data[start : start + length]
            for chunk in (7, 4_096):
                assert b"".join(store.open_range("k", start, start + length, chunk)) == data[start : start + length]
            assert b"".join(store.open_range("k", start)) == data[start:]

    def test_reading_never_mixes_the_old_with_the_new(self, store: Store) -> None:
        store.put("k", b"a" * LARGE)
        reading = store.open_range("k", chunk=100_000)
        first = next(reading)
        store.put("k", b"b" * LARGE)
        try:
            found = first + b"".join(reading)
        except StorageError as error:
            told = str(error)
        else:
            told = "changed while it was read" if found == b"a" * LARGE else "mixed"
        assert "changed while it was read" in told
