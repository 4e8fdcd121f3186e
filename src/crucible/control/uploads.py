"""Uploads: bytes that arrive in pieces are written beside the store, then put there whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from crucible.control.ports import Ports
from crucible.core.errors import BadInput, DiskFull
from crucible.storage import BundleStore

PUT_DEADLINE = 600.0
WRITE_DEADLINE = 60.0
LANE = "store"


class TooLarge(BadInput):
    code = "too_large"
    http_status = 413


class Uploads:
    def __init__(self, ports: Ports, scratch: Path) -> None:
        self._ports = ports
        self._scratch = scratch

    async def bundle(self, sha256: str, chunks: AsyncIterator[bytes], limit: int) -> tuple[int, bool]:
        """Stores a bundle; its size and whether it is new. HashMismatch when the bytes are other ones."""
        path = await self._receive(chunks, limit)
        try:
            store = BundleStore(self._ports.store)
            new = await self._ports.calls.run(LANE, lambda: store.put(path, sha256), PUT_DEADLINE)
            return await self._ports.calls.run(LANE, lambda: store.size(sha256), PUT_DEADLINE) or 0, new
        finally:
            path.unlink(missing_ok=True)

    async def object(self, key: str, sha256: str, chunks: AsyncIterator[bytes], limit: int) -> int:
        """Stores any object; its size."""
        path = await self._receive(chunks, limit)
        try:
            stored = await self._ports.calls.run(
                LANE, lambda: self._ports.store.put(key, path, sha256=sha256), PUT_DEADLINE
            )
            return stored.size
        finally:
            path.unlink(missing_ok=True)

    async def _receive(self, chunks: AsyncIterator[bytes], limit: int) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._scratch, prefix="upload-")
        try:
            await self._fill(handle, chunks, limit)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(handle)
        return Path(name)

    async def _fill(self, handle: int, chunks: AsyncIterator[bytes], limit: int) -> None:
        received = 0
        async for chunk in chunks:
            received += len(chunk)
            if received > limit:
                raise TooLarge(
                    f"The upload is larger than {limit} bytes.",
                    fix="Leave out what is not needed (.crucibleignore), or give data with --data.",
                )
            try:
                await self._ports.calls.run(LANE, lambda c=chunk: os.write(handle, c), WRITE_DEADLINE)  # type: ignore[misc]
            except OSError as error:
                raise DiskFull(
                    "The upload could not be written.",
                    why=str(error),
                    fix="Make room where CRUCIBLE_HOME is.",
                ) from error
