"""Bundles: the users' code in the store, and the ledger of what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from crucible.control import marks
from crucible.control.crashpoints import crashpoint
from crucible.control.db import schema as t
from crucible.control.ports import Ports
from crucible.control.uploads import Uploads
from crucible.core.errors import NotFound
from crucible.storage.layout import bundle_key

MARK = "bundle"
"""Who stores a bundle is all one."""


@dataclass(frozen=True)
class StoredFile:
    """Something whole in the store."""

    key: str
    size: int
    sha256: str


class Bundles:
    def __init__(self, ports: Ports, uploads: Uploads, limit: int) -> None:
        self._ports = ports
        self._uploads = uploads
        self._limit = limit

    async def has(self, sha256: str) -> bool:
        return await self._size(sha256) is not None

    async def put(self, sha256: str, chunks: AsyncIterator[bytes]) -> bool:
        """Stores the bytes, then the row: a row means that the bundle is there whole. Whether it is new."""
        await marks.announce(self._ports, bundle_key(sha256), MARK)
        size, _ = await self._uploads.bundle(sha256, chunks, self._limit)
        crashpoint("bundle.after_put")
        now = self._ports.clock.now()
        return await self._ports.db.write(lambda conn: _note(conn, sha256, size, now))

    async def open(self, sha256: str) -> StoredFile:
        size = await self._size(sha256)
        if size is None:
            raise NotFound(f"There is no bundle {sha256[:12]}….", fix="Upload it first.")
        return StoredFile(bundle_key(sha256), size, sha256)

    async def _size(self, sha256: str) -> int | None:
        query = select(t.bundles.c.size).where(t.bundles.c.sha256 == sha256)
        return await self._ports.db.read(lambda conn: conn.execute(query).scalar())


def _note(conn: Connection, sha256: str, size: int, now: float) -> bool:
    marks.arrived(conn, bundle_key(sha256), MARK)
    if conn.execute(select(t.bundles.c.sha256).where(t.bundles.c.sha256 == sha256)).first() is not None:
        return False
    conn.execute(insert(t.bundles).values(sha256=sha256, size=size, created_at=now))
    return True
