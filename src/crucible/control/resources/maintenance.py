"""Maintenance of a deployment: status, gauges, pruning, backup, and confirming a restore."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from crucible.control.jobs import queries
from crucible.control.jobs.queries import Counts
from crucible.control.runtime import gauges
from crucible.control.runtime.durations import TimedDb
from crucible.control.runtime.gauges import ServiceMetrics
from crucible.control.runtime.services import Services
from crucible.control.upkeep import restore_hold
from crucible.core.people.identity import Identity, Permission
from crucible.core.views.server import BackupView, ConfirmedView, PruneView, RestoredView


@dataclass(frozen=True)
class Status:
    """The part of a server's status that is in the database; `restored` is set while a restore is unconfirmed."""

    deployment: str
    counts: Counts
    restored: RestoredView | None


class Maintenance:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._ports = services.ports
        self._access = services.access

    async def status(self, who: Identity) -> Status:
        """Return what runs, waits and bills, and whether a restore still has to be confirmed."""

        def read(conn: Connection) -> Status:
            return Status(self._services.deployment.id, queries.count_jobs(conn, who), restore_hold.status(conn))

        return await self._ports.db.read(read)

    async def gauges(self, who: Identity) -> ServiceMetrics:
        """Return metrics for monitoring; cheap for any number of jobs."""
        who.require(Permission.READ)
        services, db, now = self._services, self._ports.db, self._ports.clock.now()
        return ServiceMetrics(
            stored=await db.read(lambda conn: gauges.count_stored(conn, now)),
            events=services.writer.event_counts,
            launches=services.performer.launches,
            webhooks=services.sender.stats,
            writes=db.writes if isinstance(db, TimedDb) else None,
        )

    async def prune(self, who: Identity, *, older_than: float | None, dry_run: bool) -> PruneView:
        """Delete what retention no longer keeps and is older than `older_than` seconds; with `dry_run` only list it."""
        await self._access.require_operator(who, "store.prune", "dry run" if dry_run else "everything that is old")
        return await self._services.retention.prune(older_than=older_than, dry_run=dry_run)

    async def backup(self, who: Identity, target: str) -> BackupView:
        """Write a backup of the database to this path on the server's disk, while the database is in use."""
        await self._access.require_operator(who, "database.backup", target)
        return await self._services.backup.make(target)

    async def confirm_restore(self, who: Identity) -> ConfirmedView:
        """Allow machines to be launched and terminated again after a restore."""
        await self._access.require_operator(who, "database.confirm", "the restored copy")
        done = await self._services.writer.write(lambda unit: restore_hold.confirm(unit.conn, unit.now))
        for topic in ("effects", "jobs"):
            self._ports.wakeups.wake(topic)
        return done.view
