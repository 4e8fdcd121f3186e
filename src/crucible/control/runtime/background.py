"""The background tasks of a control plane, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from sqlalchemy import Connection, bindparam, select, update

from crucible.backends.base import Leaves
from crucible.control.connections import sync
from crucible.control.db import schema as t
from crucible.control.db.clock import database_now
from crucible.control.db.statement import Statement
from crucible.control.machines.janitor import release_idle_machines
from crucible.control.planning import forecast
from crucible.control.reconcile.duties import Duty, release_duties
from crucible.control.reconcile.unit_of_work import HOOKS, SCHEDULER
from crucible.control.runtime.loops import Loop, Loops
from crucible.control.runtime.services import Services
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle.machines import SIGHTINGS

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 2.0
POLL_SECONDS = 3.0
OFFERS_SECONDS = 15.0
SYNC_SECONDS = 5.0
TIDY_SECONDS = 60.0
DUTY_SECONDS = 10.0
LEDGER_SECONDS = 15.0
RETENTION_SECONDS = 30.0
LONGEST_IDLE = 5.0
FIRST_POLL_SECONDS = 2.0
MAIL_SECONDS = 60.0
LEAVE_TRIES = 6
LEAVE_WAIT = 0.2
LEAVE_DEADLINE = 1.5
RELEASE_SECONDS = 1.4
"""At most, of the two seconds that the stop of a server may take, for backends have to be left too."""
CLOCK_MARGIN = 60.0
"""Seconds that the newest event may be ahead of the clock before the clock counts as set back."""
_LATEST_EVENT = Statement(select(t.events.c.at).order_by(t.events.c.cursor.desc()).limit(1))
_CLAIMS = tuple(
    Statement(
        update(table).where(table.c.claimed_by == bindparam("worker")).values(claimed_by=None, claimed_until=None)
    )
    for table in (t.effects, t.jobs)
)


class BackgroundTasks:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._ports = services.ports
        self._first_asked: float | None = None
        self._planned_revision = services.backends.revision
        """Of the backends that waiting jobs were last planned for."""
        self._loops = Loops(services.ports, self._make_loops())

    async def start(self) -> None:
        """Adopt what an earlier process left, then start the loops, even if a backend hangs."""
        await self._ports.db.write(self._adopt_leftovers)
        await self._ports.wakeups.start()
        await self._services.connections.sync()
        await self._renew_duties()
        await self._services.uploads.remove_leftovers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_POLL_SECONDS):
                await self._poll_once()
        self._loops.start()

    async def _poll_once(self) -> None:
        await self._read_mail()
        await self._services.offers.refresh()
        for _ in range(SIGHTINGS if self._is_mail_read() else 0):
            await self._services.poller.poll()

    def _is_mail_read(self) -> bool:
        """Return whether every mailbox was read, or MAIL_SECONDS have passed.

        Polling waits for it, because what a machine wrote before it was gone still counts.
        """
        now = self._ports.clock.now()
        self._first_asked = now if self._first_asked is None else self._first_asked
        return self._services.storelink.all_read or now - self._first_asked >= MAIL_SECONDS

    async def stop(self) -> None:
        """End the loops and release idle machines. Jobs that run continue without the server."""
        await self._loops.stop()
        await self._services.offers.stop()
        await self._services.performer.stop()
        await self._services.notifier.stop()
        await self._services.storelink.stop()
        try:
            if not self._services.deployment.shared:
                await self._release_idle_machines()
                await self._leave_backends()
            await self._ports.db.write(lambda conn: release_duties(conn, self._ports.worker))
        finally:
            await self._ports.wakeups.close()
            await self._ports.db.close()
            await self._ports.calls.close()
            self._services.plans.close()

    async def _release_idle_machines(self) -> None:
        """Release idle shared machines, and wait a moment for it. Unfinished releases continue at the next start."""
        if not await self._services.writer.write(release_idle_machines):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                for _ in range(LEAVE_TRIES):
                    if not await self._services.performer.perform_due():
                        await self._ports.clock.sleep(LEAVE_WAIT)

    async def _leave_backends(self) -> None:
        """Let backends end what they run only for this server."""
        backends = map(self._services.backends.get, self._services.backends.names())
        for backend in [each for each in backends if isinstance(each, Leaves)]:
            try:
                await self._ports.calls.run(backend.name, backend.leave, LEAVE_DEADLINE)
            except CrucibleError as error:
                log.warning("leaving a backend failed", backend=backend.name, error=str(error))

    def _adopt_leftovers(self, conn: Connection) -> None:
        """Check that this process may work on the database, and release claims that an earlier one of its name left."""
        at = database_now(conn, self._ports.clock.now)
        self._services.deployment.check(conn, at, self._services.nearby())
        clear_future_deadlines(conn, at)
        for claims in _CLAIMS:
            claims.run(conn, worker=self._ports.worker)

    def _make_loops(self) -> list[Loop]:
        return [
            Loop("effects", "effects", self._start_effects),
            Loop("sweep", "jobs", self._sweep),
            Loop("scheduler", SCHEDULER, self._services.scheduler.round),
            Loop("duties", "duties", self._renew_duties),
            Loop("poller", "poll", self._poll),
            Loop("backends", sync.TOPIC, self._sync_backends),
            Loop("offers", "offers", self._refresh_offers),
            Loop("janitor", "janitor", self._tidy),
            Loop("ledger", "ledger", self._read_meters),
            Loop("retention", "retention", self._apply_retention),
            Loop("mail", "mail", self._read_mail),
            Loop("hooks", HOOKS, self._services.notifier.round),
            Loop("plans", forecast.TOPIC, self._services.forecasts.round),
        ]

    async def _start_effects(self) -> float:
        await self._services.performer.start_due()
        due = await self._services.performer.next_due()
        return LONGEST_IDLE if due is None else min(max(due - self._ports.clock.now(), 0.05), LONGEST_IDLE)

    async def _sweep(self) -> float:
        await self._services.reconciler.round()
        return SWEEP_SECONDS

    async def _renew_duties(self) -> float:
        wait = await self._services.duties.renew(self._ports.db, self._ports.clock)
        if self._services.duties.has(Duty.POLLER) and self._services.nearby():
            self._services.deployment.publish_agents_url()
        return min(wait, DUTY_SECONDS)

    async def _poll(self) -> float:
        if self._services.duties.has(Duty.POLLER) and self._is_mail_read():
            await self._services.poller.poll()
        return POLL_SECONDS

    async def _sync_backends(self) -> float:
        """Connect and disconnect backends as the database says. Without a factory there is nothing to do."""
        if not self._services.deployment.factory.can_make:
            return LONGEST_IDLE
        if await self._services.connections.sync():
            for topic in ("duties", "offers", "effects"):
                self._ports.wakeups.wake(topic)
        if self._services.duties.has(Duty.JANITOR):
            await self._services.disconnector.finish_all()
        return SYNC_SECONDS

    async def _refresh_offers(self) -> float:
        revision = self._services.backends.revision
        await self._services.offers.refresh()
        if revision != self._planned_revision:
            self._planned_revision = revision
            await self._plan_again()
        return OFFERS_SECONDS

    async def _plan_again(self) -> None:
        """Place and plan waiting jobs again, because a backend has come, gone or changed."""
        self._ports.wakeups.wake(SCHEDULER)
        if self._services.duties.has(Duty.SCHEDULER):
            await self._ports.write(forecast.request_again)
            self._ports.wakeups.wake(forecast.TOPIC)

    async def _tidy(self) -> float:
        if self._services.duties.has(Duty.JANITOR):
            await self._services.janitor.tidy()
            await self._services.janitor.release_stuck()
            await self._services.janitor.release_idle()
        return TIDY_SECONDS

    async def _read_mail(self) -> float:
        if not self._services.duties.has(Duty.POLLER):
            return POLL_SECONDS
        return await self._services.storelink.round()

    async def _read_meters(self) -> float:
        if self._services.duties.has(Duty.POLLER):
            await self._services.ledger.round()
        return LEDGER_SECONDS

    async def _apply_retention(self) -> float:
        if self._services.duties.has(Duty.RETENTION):
            await self._services.retention.round()
        return RETENTION_SECONDS


def clear_future_deadlines(conn: Connection, now: float) -> bool:
    """If the clock was set back, make everything due that waits for a time in the future. Return whether it was."""
    latest = _LATEST_EVENT.value(conn)
    if latest is None or latest <= now + CLOCK_MARGIN:
        return False
    log.warning("the clock was set back since the last run", seconds=round(latest - now))
    jobs, plans = t.jobs.c, t.plans.c
    for column in (t.effects.c.not_before, t.hooks.c.not_before, jobs.not_before, jobs.due_at, plans.due_at):
        conn.execute(update(column.table).where(column > now).values({column.name: now}))
    return True
