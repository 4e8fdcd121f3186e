"""The store in a local folder or in memory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, MemoryStore

from crucible.storage.content import Hashed
from crucible.storage.errors import NotFound, translate_errors
from crucible.storage.folder import STAGING, Folder
from crucible.storage.store import CHUNK, Content, Stored
from crucible.wire.files.paths import UnsafePath, safe_name


class ObjectStore:
    """A Store over obstore. With `folder`, `inner` must be the LocalStore of that folder."""

    def __init__(self, inner: LocalStore | MemoryStore, folder: Folder | None = None) -> None:
        self._inner = inner
        self._folder = folder

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        content = Hashed(key, data, sha256)
        with translate_errors(checked_key(key)):
            if self._folder:
                self._folder.write(key, content)
            else:
                obstore.put(self._inner, key, iter(content))
        return Stored(key, content.size, content.sha256)

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        content = Hashed(key, data, sha256)
        with translate_errors(checked_key(key)):
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
        with translate_errors(checked_key(key)):
            self._folder.adopt(key, path)
        return Stored(key, size, sha256)

    def get(self, key: str) -> bytes:
        with translate_errors(checked_key(key)):
            return bytes(obstore.get(self._inner, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        size = self._size(key)
        end = min(start + length, size)
        if not 0 <= start < end:
            return b""
        with translate_errors(key):
            return bytes(obstore.get_range(self._inner, key, start=start, end=end))

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        size = self._size(key)
        end = size if end is None else min(end, size)
        if not 0 <= start < end:
            return iter(())
        with translate_errors(key):
            result = obstore.get(self._inner, key, options={"range": (start, end)})
        return _pieces(key, result.stream(min_chunk_size=chunk))

    def size(self, key: str) -> int | None:
        try:
            return self._size(key)
        except NotFound:
            return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with translate_errors(prefix):
            for page in obstore.list(self._inner, checked_key(prefix) if prefix else None, chunk_size=1000):
                yield from ((item["path"], item["size"]) for item in page)

    def delete(self, key: str) -> None:
        try:
            with translate_errors(checked_key(key)):
                obstore.delete(self._inner, key)
        except NotFound:
            return

    def check(self) -> None:
        if self._folder:
            self._folder.check()

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._folder.root).free if self._folder else None

    def _size(self, key: str) -> int:
        with translate_errors(checked_key(key)):
            return obstore.head(self._inner, key)["size"]


_DRIVE = re.compile(r"[A-Za-z][:|]\Z")
"""Endings that no key may have: obstore takes them for a Windows drive and adds a slash."""


def checked_key(key: str) -> str:
    """Return the key if every store can hold it. Raises UnsafePath: `#` and the staging folder are reserved."""
    if "#" in safe_name(key) or key.split("/")[0] == STAGING:
        raise UnsafePath(key, "is not a key: it has '#' in it or begins with the staging folder")
    if _DRIVE.search(key):
        raise UnsafePath(key, "is not a key: it ends like the name of a drive")
    return key


def _pieces(key: str, stream: Iterator[bytes]) -> Iterator[bytes]:
    with translate_errors(key):
        for piece in stream:
            yield bytes(piece)
