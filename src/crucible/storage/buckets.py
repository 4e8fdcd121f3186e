"""The store in a bucket: S3, Google Cloud Storage or Azure.

Large content travels in parts, so that memory is bounded and a part that fails is sent again alone; nothing is
visible before the last call names the parts. Not so what may only be created: not every server decides between
two such uploads in parts, but all do between single requests. So it goes as one, out of a temporary file that is
mapped and not read into memory, with a deadline that grows with its size.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from crucible.core.errors import BadInput
from crucible.storage.addresses import BucketAddress, Provider
from crucible.storage.content import Hashed, size_ahead
from crucible.storage.errors import NotFound, StorageError, translate_errors
from crucible.storage.objects import checked_key
from crucible.storage.options import StoreOptions
from crucible.storage.providers import Client, connect
from crucible.storage.store import CHUNK, Content, Method, Stored

PART = 8 * 1024 * 1024
"""Sent or fetched by one request. A stream of unknown length can have 10,000 parts: 80 GB."""

_PARTS = 9_000
_AT_ONCE = 4
_SLOWEST = 1_000_000
"""Bytes a second, below which a large request is given up."""
_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
_WEEK = 7 * 24 * 3600


class BucketStore:
    """A Store, and Signs. Safe for threads and for several processes at once."""

    def __init__(self, address: BucketAddress, options: StoreOptions | None = None) -> None:
        self.address = address
        self._options = options or StoreOptions()
        self._client = connect(address, self._options)

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        content = Hashed(key, data, sha256)
        with self._translated(checked_key(key)):
            begin, rest = _begin(iter(content), PART)
            if rest is None:
                obstore.put(self._client, key, begin, use_multipart=False)
            else:
                self._put_parts(key, chain([begin], rest), size_ahead(data))
        return Stored(key, content.size, content.sha256)

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        content = Hashed(key, data, sha256)
        with self._translated(checked_key(key)):
            begin, rest = _begin(iter(content), PART)
            if rest is None:
                return self._create(self._client, key, begin)
            if self.size(key) is not None:
                return False
            with _on_disk(chain([begin], rest)) as whole:
                return self._create(self._patient(len(whole)), key, whole)

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        stored = self.put(key, path, sha256=sha256)
        path.unlink()
        return stored

    def get(self, key: str) -> bytes:
        with self._translated(checked_key(key)):
            found = obstore.get(self._client, key)
            if found.meta["size"] <= PART:
                return bytes(found.bytes())
        return b"".join(self.open_range(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return b"".join(self.open_range(key, start, start + length))

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        with self._translated(checked_key(key)):
            found = obstore.head(self._client, key)
        end = found["size"] if end is None else min(end, found["size"])
        if not 0 <= start < end:
            return iter(())
        return self._read(key, found["e_tag"], range(start, end), chunk)

    def size(self, key: str) -> int | None:
        try:
            with self._translated(checked_key(key)):
                return obstore.head(self._client, key)["size"]
        except NotFound:
            return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._translated(prefix):
            for page in obstore.list(self._client, checked_key(prefix) if prefix else None, chunk_size=1000):
                yield from ((item["path"], item["size"]) for item in page)

    def delete(self, key: str) -> None:
        try:
            with self._translated(checked_key(key)):
                obstore.delete(self._client, key)
        except NotFound:
            return

    def free_bytes(self) -> int | None:
        return None

    def signed_url(self, key: str, method: Method, seconds: int) -> str:
        if not 0 < seconds <= _WEEK:
            raise BadInput(f"A signed URL cannot last {seconds} seconds.", fix="Ask for 1 second to 7 days.")
        if self.address.provider is Provider.AZURE and not _PLAIN.fullmatch(f"{self.address.prefix}{key}"):
            raise StorageError(
                f"There is no signed URL for {key!r} on Azure.",
                why="The client signs names that a URL must escape so that Azure refuses them.",
                fix="Read it through the server, or name it with letters, digits and ._~- alone.",
                key=key,
            )
        with self._translated(checked_key(key)):
            return obstore.sign(self._client, method, key, timedelta(seconds=seconds))

    def _put_parts(self, key: str, pieces: Iterable[bytes], size: int | None) -> None:
        part = max(PART, -(-(size or 0) // _PARTS))
        obstore.put(self._client, key, pieces, use_multipart=True, chunk_size=part, max_concurrency=_AT_ONCE)

    def _patient(self, size: int) -> Client:
        """Return a client whose deadline lets this many bytes pass in one request."""
        seconds = self._options.request_seconds + size / _SLOWEST
        return connect(self.address, replace(self._options, request_seconds=seconds))

    def _create(self, client: Client, key: str, data: bytes | mmap.mmap) -> bool:
        """Create the object; False if one is there and can be read. Azure also refuses for parts of a broken put."""
        try:
            obstore.put(client, key, data, mode="create")
        except AlreadyExistsError as error:
            if self.size(key) is not None:
                return False
            raise StorageError(
                f"{key!r} can neither be created nor read.",
                why="A put to it was broken off, or it was deleted at this very moment.",
                fix="Try again, or put it without the condition.",
                key=key,
            ) from error
        return True

    def _read(self, key: str, tag: str | None, span: range, chunk: int) -> Iterator[bytes]:
        """Yield the object by short requests, so that a slow reader meets no deadline."""
        for start in span[::PART]:
            data = self._fetch(key, tag, start, min(start + PART, span.stop))
            yield from (data[at : at + chunk] for at in range(0, len(data), chunk))

    def _fetch(self, key: str, tag: str | None, start: int, end: int) -> bytes:
        with self._translated(key):
            try:
                found = obstore.get(self._client, key, options={"range": (start, end), "if_match": tag})
                return bytes(found.bytes())
            except PreconditionError as error:
                raise StorageError(f"{key!r} changed while it was read.", fix="Read it again.", key=key) from error

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        with translate_errors(key, str(self.address)):
            yield


def _begin(pieces: Iterator[bytes], limit: int) -> tuple[bytes, Iterator[bytes] | None]:
    """Return the first bytes and the rest; the rest is None if there is none and they are no more than `limit`."""
    begin: list[bytes] = []
    size = 0
    for piece in pieces:
        begin.append(piece)
        size += len(piece)
        if size > limit:
            return b"".join(begin), pieces
    return b"".join(begin), None


@contextmanager
def _on_disk(pieces: Iterable[bytes]) -> Iterator[mmap.mmap]:
    """Map all pieces from an unlinked file, which nobody else can truncate while it is mapped."""
    with TemporaryFile() as file:
        file.writelines(pieces)
        file.flush()
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
