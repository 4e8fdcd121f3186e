"""Reconcile: a sweep over the jobs that are due, and over the queue.

Everything that a lost message would have caused is caused by a sweep: correctness never depends on a wake-up.
"""

from __future__ import annotations

from sqlalchemy import Connection, or_, select, update

from crucible.control import repository
from crucible.control.contacts import Contacts
from crucible.control.db import schema as t
from crucible.control.ports import Ports
from crucible.control.scheduler import Scheduler
from crucible.control.unit import Unit, Writer
from crucible.core.lifecycle import JobState
from crucible.core.lifecycle.facts import Tick

BATCH = 100
CLAIM_SECONDS = 10.0


class Reconciler:
    def __init__(self, ports: Ports, writer: Writer, scheduler: Scheduler, contacts: Contacts) -> None:
        self._ports = ports
        self._writer = writer
        self._scheduler = scheduler
        self._contacts = contacts

    async def round(self) -> None:
        """One round: contacts are stored, due jobs looked at, the queue served."""
        await self._flush()
        for job in await self._claim_due():
            await self._writer.write(lambda unit, j=job: self._look(unit, j))  # type: ignore[misc]
        if await self._ports.db.read(self._anything_queued):
            await self._writer.write(self._scheduler.place)

    async def _flush(self) -> None:
        if self._contacts.waiting:
            seen = self._contacts.take()
            await self._ports.db.write(lambda conn: seen.store(conn))

    async def _claim_due(self) -> list[str]:
        now = self._ports.clock.now()
        if not await self._ports.db.read(lambda conn: _due(conn, now)):
            return []
        return await self._ports.db.write(lambda conn: self._claim(conn, now))

    def _claim(self, conn: Connection, now: float) -> list[str]:
        jobs = _due(conn, now)
        hold = {"claimed_by": self._ports.worker, "claimed_until": now + CLAIM_SECONDS}
        conn.execute(update(t.jobs).where(t.jobs.c.id.in_(jobs)).values(hold))
        return jobs

    def _look(self, unit: Unit, job: str) -> None:
        world = repository.load_world(unit.conn, job)
        if world is None:
            return
        after = unit.advance(world, Tick())
        unit.conn.execute(
            update(t.jobs).where(t.jobs.c.id == job).values(claimed_by=None, claimed_until=None)
        )
        if world.live is not None and after.live is None:
            self._scheduler.place(unit)

    def _anything_queued(self, conn: Connection) -> bool:
        now = self._ports.clock.now()
        query = select(t.jobs.c.id).where(t.jobs.c.state == JobState.QUEUED.value, t.jobs.c.not_before <= now)
        return conn.execute(query.limit(1)).first() is not None


def _due(conn: Connection, now: float) -> list[str]:
    c = t.jobs.c
    free = or_(c.claimed_until.is_(None), c.claimed_until <= now)
    query = select(c.id).where(c.due_at.is_not(None), c.due_at <= now, free).order_by(c.due_at).limit(BATCH)
    return list(conn.execute(query).scalars())
