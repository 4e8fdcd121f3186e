"""A store in memory that may be full or unreachable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from crucible.simulation.faults.fault_rates import FaultRates
from crucible.storage import HashMismatch, NotFound, StoreFull
from crucible.storage.errors import StoreUnreachable
from crucible.storage.store import CHUNK, Content, Stored

FREE_BYTES = 1024**4


class MemoryStore:
    """The store port, with faults. `objects` holds what is stored."""

    def __init__(self, faults: FaultRates) -> None:
        self._faults = faults
        self.objects: dict[str, bytes] = {}

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        content = _read_all(data)
        digest = hashlib.sha256(content).hexdigest()
        if sha256 is not None and sha256 != digest:
            raise HashMismatch("The content has another hash.")
        self._check_free()
        self._answer()
        self.objects[key] = content
        self._answer()
        return Stored(key, len(content), digest)

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        self._reach()
        if key in self.objects:
            return False
        self.put(key, data, sha256=sha256)
        return True

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        stored = self.put(key, path, sha256=sha256)
        path.unlink(missing_ok=True)
        return stored

    def get(self, key: str) -> bytes:
        self._reach()
        if key not in self.objects:
            raise NotFound(f"Nothing is stored as {key!r}.")
        return self.objects[key]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        return iter([self.get(key)[start:end]])

    def size(self, key: str) -> int | None:
        self._reach()
        return len(self.objects[key]) if key in self.objects else None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        self._reach()
        below = f"{prefix}/" if prefix else ""
        return iter([(key, len(data)) for key, data in self.objects.items() if key.startswith(below)])

    def delete(self, key: str) -> None:
        self._answer("removal.failed")
        self.objects.pop(key, None)
        self._answer("removal.failed")

    def check(self) -> None:
        self._reach()

    def free_bytes(self) -> int | None:
        self._reach()
        return 0 if self._faults.storming("store") else FREE_BYTES

    def _check_free(self) -> None:
        if self._faults.storming("store"):
            raise StoreFull("There is no room left.")

    def _answer(self, fault: str = "store.failed") -> None:
        """Raise StoreUnreachable if the fault strikes: a lost request before the work, a lost response after it."""
        self._reach()
        if self._faults.strikes(fault):
            raise StoreUnreachable("The store does not answer.")

    def _reach(self) -> None:
        if self._faults.storming("store away"):
            raise StoreUnreachable("The store cannot be reached.")


def _read_all(data: Content) -> bytes:
    if isinstance(data, bytes):
        return data
    return data.read_bytes() if isinstance(data, Path) else b"".join(data)
