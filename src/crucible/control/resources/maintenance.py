"""Maintenance of a deployment: its status, gauges, pruning, backup, and the end of a restore."""

from __future__ import annotations

from crucible.control import gauges, queries, restored
from crucible.control.parts import Parts
from crucible.control.resources.access import Access
from crucible.control.views import View
from crucible.core.people import Identity, Permission


class Maintenance:
    def __init__(self, parts: Parts, access: Access) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._access = access

    async def status(self, who: Identity) -> View:
        """Return how much runs, waits and bills, and whether a restore still has to be confirmed."""
        deployment = self._parts.deployment
        counts = await self._ports.db.read(lambda conn: queries.counts(conn, who))
        held = await self._ports.db.read(restored.status)
        return {"deployment": deployment.id, "agents_url": deployment.agents_url, **counts, "restored": held}

    async def gauges(self, who: Identity) -> View:
        """Return figures for monitoring, cheap however many jobs there are; counters are this process's own."""
        who.need(Permission.READ)
        parts, now = self._parts, self._ports.clock.now()
        stored = await self._ports.db.read(lambda conn: gauges.stored(conn, now))
        counted = gauges.counted(parts.writer.counted, parts.performer.launches)
        webhooks = gauges.webhooks(parts.sender.calls)
        return {**stored, **counted, "webhooks": webhooks, "writes": gauges.write_times(self._ports.db)}

    async def prune(self, who: Identity, *, older_than: float | None, dry_run: bool) -> View:
        """Remove what retention allows, older than so many seconds; with `dry_run` only say what that is."""
        await self._access.need_operator(who, "store.prune", "dry run" if dry_run else "everything that is old")
        return await self._parts.retention.prune(older_than=older_than, dry_run=dry_run)

    async def backup(self, who: Identity, target: str) -> View:
        """Copy the database to this path on the server's disk, while it is in use."""
        await self._access.need_operator(who, "database.backup", target)
        return await self._parts.backup.make(target)

    async def confirm_restore(self, who: Identity) -> View:
        """Allow machines to be launched and ended again after a restore, and place jobs."""
        await self._access.need_operator(who, "database.confirm", "the restored copy")
        done = await self._parts.writer.write(lambda unit: restored.confirm(unit.conn, unit.now))
        for topic in ("effects", "jobs"):
            self._ports.wakeups.wake(topic)
        return done.view
