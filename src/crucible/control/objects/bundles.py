"""Bundles: users' code in the store, and the rows that say what is there."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, bindparam, insert, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.objects import gc_marks, pending_objects
from crucible.control.objects.uploads import Uploads
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.runtime.ports import Ports
from crucible.core.errors import NotFound
from crucible.core.people.identity import OWNER, Identity, Permission
from crucible.storage import read_either
from crucible.storage.layout import bundle_key

T = TypeVar("T")

MARK = "bundle"
"""One mark for all users who store a bundle; each upload has a mark of its own, too."""
_SIZE = Statement(select(t.bundles.c.size).where(t.bundles.c.sha256 == bindparam("sha256")))
_HOLDER = Statement(
    select(t.holders.c.user).where(t.holders.c.sha256 == bindparam("sha256"), t.holders.c.user == bindparam("user"))
)


@dataclass(frozen=True)
class StoredFile:
    """A complete object in the store, under `key` or, if there is no such object, under `other_key`."""

    key: str
    size: int
    sha256: str
    other_key: str | None = None

    def read(self, read: Callable[[str], T]) -> T:
        """Return `read(key)` for the key that the object is stored under. Raises the store's NotFound."""
        return read_either(read, self.key, self.other_key)


class Bundles:
    def __init__(self, ports: Ports, uploads: Uploads, limit: int) -> None:
        self._ports = ports
        self._uploads = uploads
        self._limit = limit
        self._sendings = itertools.count(1)

    async def has(self, who: Identity, sha256: str) -> bool:
        return await self._ports.db.read(lambda conn: may_use(conn, sha256, who))

    async def put(self, who: Identity, sha256: str, chunks: AsyncIterator[bytes]) -> bool:
        """Store the bytes, then the row: a row means that the bundle is complete. Return whether it is new to the user.

        Retention removes bytes whose row was never written.
        """
        who.require_submitter()
        expected = pending_objects.PendingObject(bundle_key(sha256), None, sha256)
        async with gc_marks.mark_upload(self._ports, expected.key, MARK, next(self._sendings)) as sent:

            async def begin(_size: int) -> None:
                await self._ports.db.write(lambda conn: pending_objects.add_pending(conn, expected))
                await sent.begin()

            size, _ = await self._uploads.put_bundle(sha256, chunks, self._limit, begin)
            crashpoint("bundle.after_put")
            now = self._ports.clock.now()
            return await self._ports.db.write(lambda conn: _add_row(conn, sha256, size, who, now))

    async def open(self, sha256: str) -> StoredFile:
        size = await self._size(sha256)
        if size is None:
            raise NotFound(f"There is no bundle {sha256[:12]}….", fix="Upload it first.")
        return StoredFile(bundle_key(sha256), size, sha256)

    async def _size(self, sha256: str) -> int | None:
        size: int | None = await self._ports.db.read(lambda conn: _SIZE.value(conn, sha256=sha256))
        return size


def may_use(conn: Connection, sha256: str, who: Identity) -> bool:
    """Return whether the bundle exists and this user uploaded it: knowing its hash gives no right to the code."""
    if not _is_there(conn, sha256):
        return False
    if who.job is not None:
        # A share link shows what its maker chose, not everything that its maker may use.
        return False
    return who.may(Permission.OPERATE) or _holds(conn, sha256, who)


def _is_there(conn: Connection, sha256: str) -> bool:
    return _SIZE.value(conn, sha256=sha256) is not None


def _holds(conn: Connection, sha256: str, who: Identity) -> bool:
    return _HOLDER.value(conn, sha256=sha256, user=who.user) is not None


def _add_row(conn: Connection, sha256: str, size: int, who: Identity, now: float) -> bool:
    gc_marks.clear_arriving(conn, bundle_key(sha256), MARK)
    known = may_use(conn, sha256, who)
    if who is not OWNER and not _holds(conn, sha256, who):
        conn.execute(insert(t.holders).values(sha256=sha256, user=who.user))
    if not _is_there(conn, sha256):
        conn.execute(insert(t.bundles).values(sha256=sha256, size=size, created_at=now))
    return not known
