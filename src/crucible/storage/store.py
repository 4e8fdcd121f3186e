"""The interface of object stores: bytes under keys, in a local folder or in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

from crucible.storage.errors import NotFound

T = TypeVar("T")

CHUNK = 1024 * 1024

Content = bytes | Path | Iterable[bytes]
Method = Literal["GET", "PUT"]


@dataclass(frozen=True)
class Stored:
    """The result of a put, which is durable."""

    key: str
    size: int
    sha256: str


class Store(Protocol):
    """Bytes under keys. Every call blocks, over a network with a timeout. Any thread may call it.

    Keys are validated with `safe_name`, which raises UnsafePath. Failures are StorageError or a subclass. After
    StoreUnreachable a put may have been stored, and then completely: only the response was lost.
    """

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        """Store under `key`, replacing an existing object. Readers see the old or the new content, never a part.

        When this returns, the bytes survive a crash. With `sha256`, content that has another hash raises HashMismatch
        and changes nothing. An exception out of `data` changes nothing either.
        """
        ...

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        """Like `put`, but return False if the object exists. Of several concurrent calls at most one returns True.

        Also returns False if the first attempt of this call was stored, its response was lost, and it was retried.
        """
        ...

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        """Like `put`, but move the file into the store. The caller has checked that its hash is `sha256`.

        If this fails, the file may still be at `path`.
        """
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer, or none, if the object ends before."""
        ...

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        """Return the bytes from `start` up to, not including, `end`, in pieces of about `chunk`.

        Raises NotFound immediately, not at the first piece. Content of a later put is never mixed in: reading continues
        with the old content, or raises StorageError.
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

    def check(self) -> None:
        """Raise a StorageError if the store is gone, does not answer or cannot be written. Cheap; writes nothing."""
        ...

    def free_bytes(self) -> int | None:
        """Return the free bytes, or None if there is no limit."""
        ...


@runtime_checkable
class Signs(Protocol):
    """A store that can sign URLs, with which others can read or write one object for a while without credentials."""

    def signed_url(self, key: str, method: Method, seconds: int) -> str:
        """Return a URL that serves `method` on `key` for `seconds` (up to 7 days). Treat it as a secret.

        Uploads through it are not checked: verify their content before using it.
        """
        ...


def read_either(read: Callable[[str], T], key: str, other_key: str | None) -> T:
    """Return `read(key)`, or `read(other_key)` if there is no object `key`. Raises NotFound for `key` if both miss."""
    try:
        return read(key)
    except NotFound as missing:
        if other_key is None:
            raise
        try:
            return read(other_key)
        except NotFound:
            raise missing from None
