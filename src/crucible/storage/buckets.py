"""The store in a bucket: S3, Google Cloud Storage or Azure.

Large content is sent in parts, so that memory is bounded and a failed part is sent again alone. Nothing is visible
before the last request names the parts. A create-only put is different: not every server lets only one of two such
multipart uploads succeed, but all do so for single requests. So it is one request, from a temporary file that is mapped
and not read into memory, with a timeout that grows with its size.
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
"""Bytes that one request sends or fetches. A stream of unknown length can have 10,000 parts: 80 GB."""

_PARTS = 9_000
_AT_ONCE = 4
_MIN_RATE = 1_000_000
"""Bytes per second; a slower large request times out."""
_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
_WEEK = 7 * 24 * 3600
_NOWHERE = "readiness"
"""A folder that is always empty. To list it, as opposed to asking for one object, tells of a missing bucket."""


class BucketStore:
    """A Store in a bucket, which also Signs. Safe for threads and for several processes at once."""

    def __init__(self, address: BucketAddress, options: StoreOptions | None = None) -> None:
        self.address = address
        self._options = options or StoreOptions()
        self._client = connect(address, self._options)

    def put(self, key: str, data: Content, *, sha256: str | None = None) -> Stored:
        content = Hashed(key, data, sha256)
        with self._translated(checked_key(key)):
            first, rest = _read_ahead(iter(content), PART)
            if rest is None:
                obstore.put(self._client, key, first, use_multipart=False)
            else:
                self._put_parts(key, chain([first], rest), size_ahead(data))
        return Stored(key, content.size, content.sha256)

    def put_new(self, key: str, data: Content, *, sha256: str | None = None) -> bool:
        content = Hashed(key, data, sha256)
        with self._translated(checked_key(key)):
            first, rest = _read_ahead(iter(content), PART)
            if rest is None:
                return self._create(self._client, key, first)
            if self.size(key) is not None:
                return False
            with _mapped_file(chain([first], rest)) as content_map:
                return self._create(self._client_for(len(content_map)), key, content_map)

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        stored = self.put(key, path, sha256=sha256)
        path.unlink()
        return stored

    def get(self, key: str) -> bytes:
        with self._translated(checked_key(key)):
            response = obstore.get(self._client, key)
            if response.meta["size"] <= PART:
                return bytes(response.bytes())
        return b"".join(self.open_range(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return b"".join(self.open_range(key, start, start + length))

    def open_range(self, key: str, start: int = 0, end: int | None = None, chunk: int = CHUNK) -> Iterator[bytes]:
        with self._translated(checked_key(key)):
            meta = obstore.head(self._client, key)
        end = meta["size"] if end is None else min(end, meta["size"])
        if not 0 <= start < end:
            return iter(())
        return self._read(key, meta["e_tag"], range(start, end), chunk)

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

    def check(self) -> None:
        next(self.list(_NOWHERE), None)

    def free_bytes(self) -> int | None:
        return None

    def signed_url(self, key: str, method: Method, seconds: int) -> str:
        if not 0 < seconds <= _WEEK:
            raise BadInput(f"A signed URL cannot last {seconds} seconds.", fix="Use 1 second to 7 days.")
        if self.address.provider is Provider.AZURE and not _PLAIN.fullmatch(f"{self.address.prefix}{key}"):
            raise StorageError(
                f"There is no signed URL for {key!r} on Azure.",
                why="Azure refuses the client's signature for names with characters that a URL must escape.",
                fix="Read it through the server, or use only letters, digits and ._~- in its name.",
                key=key,
            )
        with self._translated(checked_key(key)):
            return obstore.sign(self._client, method, key, timedelta(seconds=seconds))

    def _put_parts(self, key: str, pieces: Iterable[bytes], size: int | None) -> None:
        part = max(PART, -(-(size or 0) // _PARTS))
        obstore.put(self._client, key, pieces, use_multipart=True, chunk_size=part, max_concurrency=_AT_ONCE)

    def _client_for(self, size: int) -> Client:
        """Return a client whose timeout is long enough to send this many bytes in one request."""
        seconds = self._options.request_seconds + size / _MIN_RATE
        return connect(self.address, replace(self._options, request_seconds=seconds))

    def _create(self, client: Client, key: str, data: bytes | mmap.mmap) -> bool:
        """Create the object. Return False if there is one already."""
        try:
            obstore.put(client, key, data, mode="create")
        except AlreadyExistsError as error:
            # Azure also raises this for the parts of an interrupted upload, which cannot be read.
            if self.size(key) is not None:
                return False
            raise StorageError(
                f"{key!r} can neither be created nor read.",
                why="An upload to it was interrupted, or it was deleted at the same moment.",
                fix="Try again, or put it without the condition.",
                key=key,
            ) from error
        return True

    def _read(self, key: str, tag: str | None, span: range, chunk: int) -> Iterator[bytes]:
        """Yield the object from short requests, so that a slow reader does not run into a timeout."""
        for start in span[::PART]:
            data = self._fetch(key, tag, start, min(start + PART, span.stop))
            yield from (data[i : i + chunk] for i in range(0, len(data), chunk))

    def _fetch(self, key: str, tag: str | None, start: int, end: int) -> bytes:
        with self._translated(key):
            try:
                response = obstore.get(self._client, key, options={"range": (start, end), "if_match": tag})
                return bytes(response.bytes())
            except PreconditionError as error:
                raise StorageError(f"{key!r} changed while it was read.", fix="Read it again.", key=key) from error

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        with translate_errors(key, str(self.address)):
            yield


def _read_ahead(pieces: Iterator[bytes], limit: int) -> tuple[bytes, Iterator[bytes] | None]:
    """Return the first bytes and the remaining pieces, or all bytes and None if they are no more than `limit`."""
    first: list[bytes] = []
    size = 0
    for piece in pieces:
        first.append(piece)
        size += len(piece)
        if size > limit:
            return b"".join(first), pieces
    return b"".join(first), None


@contextmanager
def _mapped_file(pieces: Iterable[bytes]) -> Iterator[mmap.mmap]:
    """Map all pieces from an unlinked temporary file, which no other process can truncate."""
    with TemporaryFile() as file:
        file.writelines(pieces)
        file.flush()
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
