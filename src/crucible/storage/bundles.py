"""Bundles in the store, each under the hash of its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from crucible.storage.layout import bundle_key, checked_sha256
from crucible.storage.store import CHUNK, Store


class BundleStore:
    """Stored bundles never change: one that is there is whole and has its hash."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has(self, sha256: str) -> bool:
        return self.size(sha256) is not None

    def size(self, sha256: str) -> int | None:
        """Return the size of the archive in bytes, or None if it is not stored."""
        return self._store.size(bundle_key(sha256))

    def put(self, content: Path | Iterable[bytes], sha256: str) -> bool:
        """Store an archive that must have this hash; HashMismatch, and nothing stored, if it does not.

        True if it is new, False if it was there. Then `content` may not have been read, or not to its end.
        """
        return self._store.put_new(bundle_key(sha256), content, sha256=checked_sha256(sha256))

    def open(self, sha256: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        """Return the archive's bytes from `start`, in pieces. Raises NotFound before the first of them."""
        return self._store.open_range(bundle_key(sha256), start, end, chunk)
