"""The object store: bytes under keys, on a local folder now and in a bucket later."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, MemoryStore

from crucible.storage.errors import HashMismatch, NotFound, StorageError, translated
from crucible.storage.folder import STAGING, Folder
from crucible.wire.paths import UnsafePath, safe_name

CHUNK = 1024 * 1024

Content = bytes | Path | Iterable[bytes]


@dataclass(frozen=True)
class Stored:
    """What a put has stored, durably."""

    key: str
    size: int
    sha256: str


class Store(Protocol):
    """Bytes under keys. Every call blocks; any thread may make it.

    Keys are checked with `safe_name` (UnsafePath). Failures are StorageError or one of its kinds.
    """

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        """Store under `key`, replacing what is there. Readers see the old or the new, never a part.

        When it returns, the bytes survive a crash. With `sha256` given, content of another hash raises
        HashMismatch and changes nothing. An exception out of `data` changes nothing either.
        """
        ...

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        """Like `put`, but only if `key` is free. Of many at once exactly one gets True."""
        ...

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        """Like `put`, of a file that the store takes away: it is gone afterwards.

        The caller has checked that its hash is `sha256`. When this fails, the file may still be there.
        """
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`; fewer, or none, where the object ends."""
        ...

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        """The bytes from `start` up to, not including, `end`, in pieces of about `chunk`.

        Raises NotFound at once, not at the first piece. A later put does not change what is being read.
        """
        ...

    def size(self, key: str) -> int | None:
        """None if there is no such object."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(key, size) of all objects below the folder `prefix` ("" for all), in no order."""
        ...

    def delete(self, key: str) -> None:
        """Already gone is fine."""
        ...

    def free_bytes(self) -> int | None:
        """Room left, None where there is no such limit."""
        ...


class ObjectStore:
    """A Store over obstore. With `folder`, `inner` must be the LocalStore of that folder."""

    def __init__(self, inner: LocalStore | MemoryStore, folder: Folder | None = None) -> None:
        self._inner = inner
        self._folder = folder

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        content = _Hashed(key, data, sha256)
        with translated(_checked(key)):
            if self._folder:
                self._folder.write(key, content)
            else:
                obstore.put(self._inner, key, iter(content))
        return Stored(key, content.size, content.sha256)

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        content = _Hashed(key, data, sha256)
        with translated(_checked(key)):
            if self._folder:
                return self._folder.write_new(key, content)
            try:
                obstore.put(self._inner, key, b"".join(content), mode="create")
            except AlreadyExistsError:
                return False
        return True

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        if self._folder is None:
            stored = self.put(key, path, sha256=sha256)
            path.unlink()
            return stored
        size = path.stat().st_size
        with translated(_checked(key)):
            self._folder.adopt(key, path)
        return Stored(key, size, sha256)

    def get(self, key: str) -> bytes:
        with translated(_checked(key)):
            return bytes(obstore.get(self._inner, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        size = self._size(key)
        end = min(start + length, size)
        if not 0 <= start < end:
            return b""
        with translated(key):
            return bytes(obstore.get_range(self._inner, key, start=start, end=end))

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        size = self._size(key)
        end = size if end is None else min(end, size)
        if not 0 <= start < end:
            return iter(())
        with translated(key):
            result = obstore.get(self._inner, key, options={"range": (start, end)})
        return _pieces(key, result.stream(min_chunk_size=chunk))

    def size(self, key: str) -> int | None:
        try:
            return self._size(key)
        except NotFound:
            return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with translated(prefix):
            for page in obstore.list(self._inner, _checked(prefix) if prefix else None, chunk_size=1000):
                yield from ((item["path"], item["size"]) for item in page)

    def delete(self, key: str) -> None:
        try:
            with translated(_checked(key)):
                obstore.delete(self._inner, key)
        except NotFound:
            return

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._folder.root).free if self._folder else None

    def _size(self, key: str) -> int:
        with translated(_checked(key)):
            return obstore.head(self._inner, key)["size"]


def open_store(url: str) -> ObjectStore:
    """The store at `url`: `file:///path`, or a plain path. The folder is made if it is missing."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or (parts.scheme and parts.netloc not in ("", "localhost")):
        raise StorageError(
            f"There is no store for {url!r}.",
            why="Only folders can be used.",
            fix="Give file:///path or a path.",
        )
    root = Path(unquote(parts.path) if parts.scheme else url).expanduser().absolute()
    with translated(str(root)):
        folder = Folder(root)
        return ObjectStore(LocalStore(root), folder)


class _Hashed:
    """Content in pieces, hashed and counted on its way; the wrong hash raises before the end is reached."""

    def __init__(self, key: str, data: Content, expected: str | None) -> None:
        if isinstance(data, Path) and not data.is_file():
            raise FileNotFoundError(f"{data} is not a file")
        self._key = key
        self._data = data
        self._expected = expected
        self.size = 0
        self.sha256 = ""

    def __iter__(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in _content(self._data):
            digest.update(piece)
            self.size += len(piece)
            yield piece
        self.sha256 = digest.hexdigest()
        if self._expected not in (None, self.sha256):
            raise HashMismatch(
                f"The content for {self._key!r} is not what was announced.",
                why=f"Its SHA-256 is {self.sha256}, not {self._expected}.",
                fix="Send it again.",
            )


def _content(data: Content) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
    elif isinstance(data, Path):
        with data.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
    else:
        yield from data


def _pieces(key: str, stream: Iterator[bytes]) -> Iterator[bytes]:
    with translated(key):
        for piece in stream:
            yield bytes(piece)


def _checked(key: str) -> str:
    """A safe name that every store can hold: a local one keeps `#` and its staging folder for itself."""
    if "#" in safe_name(key) or key.split("/")[0] == STAGING:
        raise UnsafePath(key, "is not a key: it has '#' in it or begins with the staging folder")
    return key
