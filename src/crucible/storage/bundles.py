"""Bundles in the store, under the hash of their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from crucible.storage.layout import bundle_key, checked_sha256
from crucible.storage.store import CHUNK, Store


class BundleStore:
    """Reads and writes bundles. They never change: a stored one is complete and has its hash."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has(self, sha256: str) -> bool:
        return self.size(sha256) is not None

    def size(self, sha256: str) -> int | None:
        """Return the size of the archive in bytes, or None if it is not stored."""
        return self._store.size(bundle_key(sha256))

    def put(self, content: Path | Iterable[bytes], sha256: str) -> bool:
        """Store an archive. Raises HashMismatch, and stores nothing, if it has another hash.

        Return True if it is new, and False if it was stored already; then `content` may not be read to its end.
        """
        return self._store.put_new(bundle_key(sha256), content, sha256=checked_sha256(sha256))

    def open(self, sha256: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        """Return the archive's bytes from `start`, in pieces. Raises NotFound before the first of them."""
        return self._store.open_range(bundle_key(sha256), start, end, chunk)
