"""The rounds: what keeps a control plane going, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from sqlalchemy import Connection, bindparam, update

from crucible.backends.base import Leaves
from crucible.control.db import schema as t
from crucible.control.db.clock import now
from crucible.control.db.statement import Statement
from crucible.control.machines.pools import release_idle
from crucible.control.planning import forecast
from crucible.control.reconcile import roles
from crucible.control.reconcile.roles import Duty
from crucible.control.reconcile.unit_of_work import HOOKS
from crucible.control.runtime.clock_skew import forget_what_is_ahead
from crucible.control.runtime.loops import Loop, Loops
from crucible.control.runtime.services import Parts
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle.machines import SIGHTINGS

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 2.0
POLL_SECONDS = 3.0
OFFERS_SECONDS = 15.0
TIDY_SECONDS = 60.0
DUTY_SECONDS = 10.0
LEDGER_SECONDS = 15.0
RETENTION_SECONDS = 30.0
LONGEST_IDLE = 5.0
FIRST_LOOK_SECONDS = 2.0
MAIL_SECONDS = 60.0
LEAVE_TRIES = 6
LEAVE_WAIT = 0.2
LEAVE_DEADLINE = 1.5
_CLAIMS = tuple(
    Statement(
        update(table).where(table.c.claimed_by == bindparam("worker")).values(claimed_by=None, claimed_until=None)
    )
    for table in (t.effects, t.jobs)
)


class Rounds:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._first_asked: float | None = None
        self._loops = Loops(parts.ports, self._make_loops())

    async def start(self) -> None:
        """Takes up whatever was left, then starts the loops. A place that hangs does not keep us from it."""
        await self._ports.db.write(self._take_up)
        await self._ports.wakeups.start()
        await self._renew()
        await self._parts.uploads.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self._first_look()
        self._loops.start()

    async def _first_look(self) -> None:
        await self._mail()
        await self._parts.backends.refresh()
        for _ in range(SIGHTINGS if self._mail_is_read() else 0):
            await self._parts.poller.poll()

    def _mail_is_read(self) -> bool:
        """What a machine said before it went counts, so nothing is believed gone before that.

        A store that does not answer holds this up for a while only.
        """
        now = self._ports.clock.now()
        self._first_asked = now if self._first_asked is None else self._first_asked
        return self._parts.storelink.has_read or now - self._first_asked >= MAIL_SECONDS

    async def stop(self) -> None:
        """Ends the loops, then gives back machines that nobody uses. What runs goes on without us."""
        await self._loops.stop()
        await self._parts.performer.stop()
        await self._parts.notifier.stop()
        await self._parts.storelink.stop()
        try:
            if not self._parts.deployment.shared:
                await self._leave()
                await self._leave_places()
            await self._ports.db.write(lambda conn: roles.release(conn, self._ports.worker))
        finally:
            await self._ports.wakeups.close()
            await self._ports.db.close()
            await self._ports.calls.close()
            self._parts.plans.close()

    async def _leave(self) -> None:
        """Idle pool machines are released; a release that takes longer goes on at the next start."""
        if not await self._parts.writer.write(release_idle):
            return
        for _ in range(LEAVE_TRIES):
            if not await self._parts.performer.perform_due():
                await self._ports.clock.sleep(LEAVE_WAIT)

    async def _leave_places(self) -> None:
        """What a place keeps going only for us ends, where it can at once."""
        leaving = [b for b in map(self._parts.backends.get, self._parts.backends.names()) if isinstance(b, Leaves)]
        for backend in leaving:
            try:
                await self._ports.calls.run(backend.name, backend.leave, LEAVE_DEADLINE)
            except CrucibleError as error:
                log.warning("leaving a place failed", backend=backend.name, error=str(error))

    def _take_up(self, conn: Connection) -> None:
        """A worker of this name that died left its claims behind; they are ours now."""
        at = now(conn, self._ports.clock.now)
        self._parts.deployment.admit(conn, at)
        forget_what_is_ahead(conn, at)
        for claims in _CLAIMS:
            claims.run(conn, worker=self._ports.worker)

    def _make_loops(self) -> list[Loop]:
        return [
            Loop("effects", "effects", self._perform),
            Loop("sweep", "jobs", self._sweep),
            Loop("duties", "duties", self._renew),
            Loop("poller", "poll", self._poll),
            Loop("offers", "offers", self._offers),
            Loop("janitor", "janitor", self._tidy),
            Loop("ledger", "ledger", self._meter),
            Loop("retention", "retention", self._retain),
            Loop("mail", "mail", self._mail),
            Loop("hooks", HOOKS, self._parts.notifier.round),
            Loop("plans", forecast.TOPIC, self._parts.forecasts.round),
        ]

    async def _perform(self) -> float:
        await self._parts.performer.start_due()
        due = await self._parts.performer.next_due()
        return LONGEST_IDLE if due is None else min(max(due - self._ports.clock.now(), 0.05), LONGEST_IDLE)

    async def _sweep(self) -> float:
        await self._parts.reconciler.round()
        return SWEEP_SECONDS

    async def _renew(self) -> float:
        wait = await self._parts.duties.renew(self._ports.db, self._ports.clock)
        if self._parts.duties.has(Duty.POLLER):
            self._parts.deployment.point_agents()
        return min(wait, DUTY_SECONDS)

    async def _poll(self) -> float:
        if self._parts.duties.has(Duty.POLLER) and self._mail_is_read():
            await self._parts.poller.poll()
        return POLL_SECONDS

    async def _offers(self) -> float:
        await self._parts.backends.refresh()
        return OFFERS_SECONDS

    async def _tidy(self) -> float:
        if self._parts.duties.has(Duty.JANITOR):
            await self._parts.janitor.tidy()
            await self._parts.janitor.release_stuck()
        return TIDY_SECONDS

    async def _mail(self) -> float:
        if not self._parts.duties.has(Duty.POLLER):
            return POLL_SECONDS
        return await self._parts.storelink.round()

    async def _meter(self) -> float:
        if self._parts.duties.has(Duty.POLLER):
            await self._parts.ledger.round()
        return LEDGER_SECONDS

    async def _retain(self) -> float:
        if self._parts.duties.has(Duty.RETENTION):
            await self._parts.retention.round()
        return RETENTION_SECONDS
