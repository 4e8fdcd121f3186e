"""Uploads: collect bytes in a file beside the store, which then adopts the complete file."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from io import FileIO
from pathlib import Path

from crucible.control.objects.quota import StoreQuota
from crucible.control.objects.upload_file import UploadFile, translate_disk_errors
from crucible.control.runtime.ports import Ports
from crucible.core.errors import BadInput, CrucibleError
from crucible.storage import BundleStore, HashMismatch
from crucible.storage.layout import bundle_key

PUT_DEADLINE = 60.0
WRITE_DEADLINE = 60.0
SLOWEST = 5_000_000
"""Bytes per second that a slow store takes."""
BATCH = 1024 * 1024
"""Bytes gathered before a thread writes them."""
LANE = "store"
PREFIX = "upload-"


class TooLarge(BadInput):
    code = "too_large"
    http_status = 413


def put_deadline(size: int) -> float:
    """Return the seconds within which `size` bytes must be stored; agents wait as long for the answer."""
    return PUT_DEADLINE + size / SLOWEST


async def _do_nothing(_size: int) -> None:
    """Do nothing, for uploads without a pending row."""


class Uploads:
    """`scratch` should be on the store's own file system, so that adopting is a rename. `quota`: None is no limit."""

    def __init__(self, ports: Ports, scratch: Path, quota: StoreQuota | None = None) -> None:
        self._ports = ports
        self._quota = quota
        self._scratch = scratch
        self._prefix = f"{PREFIX}{secrets.token_hex(8)}-"

    async def remove_leftovers(self) -> None:
        """Remove what killed processes left in the scratch folder. Uploads under way here are not touched."""
        await self._ports.calls.run(LANE, self._remove_left_over, WRITE_DEADLINE)

    async def put_bundle(
        self,
        sha256: str,
        chunks: AsyncIterator[bytes],
        limit: int,
        begin: Callable[[int], Awaitable[None]] = _do_nothing,
    ) -> tuple[int, bool]:
        """Store a bundle as `put_object` does; return its size and whether it is new."""
        key, bundles = bundle_key(sha256), BundleStore(self._ports.store)
        new = not await self._ports.calls.run(LANE, lambda: bundles.has(sha256), PUT_DEADLINE)
        return await self.put_object(key, sha256, chunks, limit, begin), new

    async def put_object(
        self,
        key: str,
        sha256: str,
        chunks: AsyncIterator[bytes],
        limit: int,
        begin: Callable[[int], Awaitable[None]] = _do_nothing,
    ) -> int:
        """Store an object and return its size. Raises HashMismatch, StoreFull, TooLarge.

        `begin` is called with the size, right before the store is asked to take it.
        """
        if self._quota is not None:
            await self._quota.check()
        store = self._ports.store
        async with self._open_file() as file:
            await self._fill(file, chunks, limit)
            _check_hash(file, sha256)
            await begin(file.size)
            stored = await self._ports.calls.run(
                LANE,
                lambda: file.hand_over(lambda path: store.adopt(key, path, sha256)),
                put_deadline(file.size),
            )
        return stored.size

    @asynccontextmanager
    async def _open_file(self) -> AsyncIterator[UploadFile]:
        file = UploadFile(self._new_file)
        try:
            yield file
        finally:
            if file.abandon():
                # In a thread, for removing a large file takes time. If it fails, the next start removes it.
                with suppress(CrucibleError):
                    await self._ports.calls.run(LANE, file.remove, WRITE_DEADLINE)

    async def _fill(self, file: UploadFile, chunks: AsyncIterator[bytes], limit: int) -> None:
        received, gathered, pieces = 0, 0, list[bytes]()
        async for chunk in chunks:
            received += len(chunk)
            if received > limit:
                raise TooLarge(
                    f"The upload is larger than {limit} bytes.",
                    fix="Exclude what is not needed (.crucibleignore), or pass data with --data.",
                )
            pieces.append(chunk)
            gathered += len(chunk)
            if gathered >= BATCH:
                await self._write(file, pieces)
                gathered, pieces = 0, []
        await self._write(file, pieces)

    async def _write(self, file: UploadFile, pieces: Sequence[bytes]) -> None:
        await self._ports.calls.run(LANE, lambda: file.write(pieces), WRITE_DEADLINE)

    def _new_file(self) -> tuple[FileIO, Path]:
        self._scratch.mkdir(mode=0o700, exist_ok=True)  # never the state folder above it, which may be gone
        descriptor, name = tempfile.mkstemp(dir=self._scratch, prefix=self._prefix)
        return FileIO(descriptor, "wb"), Path(name)

    def _remove_left_over(self) -> None:
        with translate_disk_errors():
            for path in self._scratch.glob(f"{PREFIX}*"):
                if not path.name.startswith(self._prefix):
                    path.unlink(missing_ok=True)


def _check_hash(file: UploadFile, sha256: str) -> None:
    if file.sha256 != sha256:
        raise HashMismatch(
            "The upload does not match its announced hash.",
            why=f"Its SHA-256 is {file.sha256}, not {sha256}.",
            fix="Send it again.",
        )
