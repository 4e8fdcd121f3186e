"""The contract of object stores: bytes under keys, in a local folder or in a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

CHUNK = 1024 * 1024

Content = bytes | Path | Iterable[bytes]
Method = Literal["GET", "PUT"]


@dataclass(frozen=True)
class Stored:
    """The result of a put: what is stored durably."""

    key: str
    size: int
    sha256: str


class Store(Protocol):
    """Bytes under keys. Every call blocks, with a deadline where there is a network; any thread may make it.

    Keys are checked with `safe_name` (UnsafePath). Failures are StorageError or one of its kinds. After
    StoreUnreachable a put may have been stored all the same, then whole: the answer was lost.
    """

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        """Store under `key`, replacing what is there. Readers see the old or the new, never a part.

        When it returns, the bytes survive a crash. With `sha256` given, content of another hash raises
        HashMismatch and changes nothing. An exception out of `data` changes nothing either.
        """
        ...

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        """Like `put`, but only if `key` is free. Of many at once at most one gets True.

        False too when a try of this very call was stored, its answer lost, and it was tried again.
        """
        ...

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        """Like `put`, of a file that the store takes away: it is gone afterwards.

        The caller has checked that its hash is `sha256`. When this fails, the file may still be there.
        """
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer, or none, where the object ends."""
        ...

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        """Return the bytes from `start` up to, not including, `end`, in pieces of about `chunk`.

        Raises NotFound at once, not at the first piece. A later put is never mixed in: reading goes on with
        the old content, or ends with a StorageError.
        """
        ...

    def size(self, key: str) -> int | None:
        """Return the size in bytes, or None if there is no such object."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield (key, size) of all objects below the folder `prefix` ("" for all), in no order."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object. Idempotent."""
        ...

    def free_bytes(self) -> int | None:
        """Return the free bytes, or None where there is no limit."""
        ...


@runtime_checkable
class Signs(Protocol):
    """A store that can make URLs by which others read or write one object for a while, without credentials."""

    def signed_url(self, key: str, method: Method, seconds: int) -> str:
        """Return a URL that serves `method` on `key` for `seconds` (up to 7 days). Treat it as a secret.

        Whoever puts through it is not checked: verify what arrived before you believe it.
        """
        ...
