"""Sweep the jobs that are due.

A sweep does everything that a lost message would have caused, so correctness never depends on a wake-up.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection, bindparam, or_, select, update

from crucible.control.agents.contacts import Contacts
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.offers import OfferBook
from crucible.control.scheduling.scheduler import Scheduler
from crucible.core.compute.offers import Need
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle.facts import Tick
from crucible.core.lifecycle.provider_queue import is_queued_too_long

log = structlog.get_logger(__name__)

BATCH = 100
CLAIM_SECONDS = 10.0
GAP_SECONDS = 20.0
POSTPONE_SECONDS = 60.0


_c = t.jobs.c
_FREE = or_(_c.claimed_until.is_(None), _c.claimed_until <= bindparam("now"))
_DUE = Statement(
    select(_c.id).where(_c.due_at.is_not(None), _c.due_at <= bindparam("now"), _FREE).order_by(_c.due_at).limit(BATCH)
)
_CLAIM = Statement(
    update(t.jobs)
    .where(_c.id == bindparam("job"), _FREE)
    .values(claimed_by=bindparam("claimed_by"), claimed_until=bindparam("claimed_until"))
)
_RELEASE = Statement(update(t.jobs).where(_c.id == bindparam("job")).values(claimed_by=None, claimed_until=None))
_POSTPONE = Statement(update(t.jobs).where(_c.id == bindparam("job")).values(due_at=bindparam("due_at")))


class Reconciler:
    def __init__(
        self, ports: Ports, writer: Writer, contacts: Contacts, scheduler: Scheduler, offers: OfferBook
    ) -> None:
        self._ports = ports
        self._writer = writer
        self._contacts = contacts
        self._scheduler = scheduler
        self._offers = offers
        self._last_round = 0.0
        self._listening_since = 0.0

    async def round(self) -> None:
        """Store contacts, and sweep the jobs that are due."""
        self._notice_gap(self._ports.clock.now())
        await self._store_contacts()
        due = await self._claim_due()
        self._note_listening(self._ports.clock.now())
        for job in due:
            await self._sweep_safely(job)

    def _notice_gap(self, now: float) -> None:
        """Restart the count of the agents' silence after a gap, in which nobody was listening to them.

        A gap is a start, a sleep of this computer, a lost database, or a clock that was set forward.
        """
        if now - self._last_round > GAP_SECONDS:
            self._listening_since = now

    def _note_listening(self, now: float) -> None:
        """Note that the database responds now, so agents are heard."""
        self._notice_gap(now)
        self._last_round = now

    async def _store_contacts(self) -> None:
        if not self._contacts.has_pending:
            return
        seen = self._contacts.take()
        try:
            await self._ports.db.write(lambda conn: seen.store(conn))
        except CrucibleError:
            # Keep them for the next round, unless there are newer ones by then.
            self._contacts.restore(seen)
            raise

    async def _sweep_safely(self, job: str) -> None:
        """Sweep one job. A failure is logged and the job is postponed, so that it does not stop the others."""
        try:
            self._offers.fetch_in_background(await self._writer.write(lambda unit: self._sweep(unit, job)))
        except Exception:
            log.exception("a job could not be looked at", job=job)
            due_at = self._ports.clock.now() + POSTPONE_SECONDS
            await self._ports.db.write(lambda conn: _POSTPONE.run(conn, job=job, due_at=due_at))

    async def _claim_due(self) -> list[str]:
        now = self._ports.clock.now()
        if not await self._ports.db.read(lambda conn: _due(conn, now)):
            return []
        return await self._ports.db.write(lambda conn: self._claim(conn, now))

    def _claim(self, conn: Connection, now: float) -> list[str]:
        claim = {"now": now, "claimed_by": self._ports.worker, "claimed_until": now + CLAIM_SECONDS}
        return [job for job in _due(conn, now) if _CLAIM.run(conn, job=job, **claim)]

    def _sweep(self, unit: UnitOfWork, job: str) -> set[tuple[str, Need]]:
        """Let time pass for the job. Return what has to be asked of backends to know where else it has room."""
        world = repository.load_world(unit.conn, job)
        if world is None:
            return set()
        # Checked again, because this process may have been paused since the round began and heard no agents.
        self._note_listening(unit.now)
        live = world.live
        late = live is not None and is_queued_too_long(world, live, unit.now)
        has_room = late and live is not None and self._scheduler.has_room_elsewhere(unit, world, live.backend)
        unit.advance(world, Tick(self._listening_since, has_room))
        _RELEASE.run(unit.conn, job=job)
        return self._scheduler.offers_elsewhere(world, live.backend, unit.now) if late and live is not None else set()


def _due(conn: Connection, now: float) -> list[str]:
    return _DUE.column(conn, now=now)
