"""How full the store may get; uploads begin only while there is space."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from crucible.control.db import schema as t
from crucible.control.runtime.ports import Ports
from crucible.core.compute.resources import GiB, format_memory
from crucible.storage import StoreFull

LANE = "store"
LOOK_DEADLINE = 20.0
REMEMBERED_SECONDS = 5.0
FIX = "Remove what is not needed with `crucible prune`, or make room on the disk."


@dataclass(frozen=True)
class QuotaLimits:
    """`reserve`: bytes of the store's disk that stay free. `quota`: bytes the store may hold; None: no limit."""

    reserve: int = GiB
    quota: int | None = None


DEFAULT = QuotaLimits()


class StoreQuota:
    """The result is cached for a few seconds, for many small uploads."""

    def __init__(self, ports: Ports, limits: QuotaLimits = DEFAULT) -> None:
        self._ports = ports
        self._limits = limits
        self._measured_at: float | None = None
        self._why_full: str | None = None

    async def check(self) -> None:
        """Raise StoreFull if nothing more may be stored."""
        why = await self.why_full()
        if why is not None:
            raise StoreFull("The store is full.", why=why, fix=FIX)

    async def why_full(self) -> str | None:
        """Return why nothing more may be stored, or None."""
        now = self._ports.clock.now()
        if self._measured_at is None or not 0 <= now - self._measured_at < REMEMBERED_SECONDS:
            self._why_full = await self._measure()
            self._measured_at = now
        return self._why_full

    def forget(self) -> None:
        """Measure again at the next check, because something was removed."""
        self._measured_at = None

    async def _measure(self) -> str | None:
        store, bounds = self._ports.store, self._limits
        free = await self._ports.calls.run(LANE, store.free_bytes, LOOK_DEADLINE)
        if free is not None and free < bounds.reserve:
            return f"{format_memory(free)} are free on its disk, and {format_memory(bounds.reserve)} stay free."
        if bounds.quota is None:
            return None
        used = await self._ports.db.read(used_bytes)
        if used < bounds.quota:
            return None
        return f"It holds {format_memory(used)} of the {format_memory(bounds.quota)} that `store_quota` allows."


def used_bytes(conn: Connection) -> int:
    """Return the bytes in the store, according to the rows."""
    once = select(t.checkpoints.c.job, t.checkpoints.c.sha256, t.checkpoints.c.size).distinct()
    kept = once.where(t.checkpoints.c.pruned_at.is_(None)).subquery()
    sums = (
        select(func.sum(t.bundles.c.size)),
        select(func.sum(t.artifacts.c.size)),
        select(func.sum(t.log_segments.c.end - t.log_segments.c.start)),
        select(func.sum(kept.c.size)),
        select(func.sum(t.uploads.c.size)),
    )
    return sum(int(conn.execute(query).scalar() or 0) for query in sums)
