"""Disconnect backends: remove a connection that is being closed once its machines are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from crucible.backends.base import Disconnects, Finding, Meters
from crucible.control.connections import rows
from crucible.control.connections.live import LiveBackends
from crucible.control.connections.redaction import redact_error
from crucible.control.connections.rows import StoredConnection
from crucible.control.connections.store import ConnectionStore
from crucible.control.connections.sync import TOPIC
from crucible.control.machines.janitor import release_idle_machines
from crucible.control.reconcile.unit_of_work import SCHEDULER, UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.queue import backends_of_queue, first_in_queue, list_queues
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError
from crucible.core.scheduling.schedule import why_not_connected

log = structlog.get_logger(__name__)

CLEAN_DEADLINE = 60.0
SETTLE_SECONDS = 10.0
"""Time after which every other process places nothing there any more."""
ALONE_SECONDS = 120.0
"""Time after which no other process is expected to clean up the backend."""
BILL_SECONDS = 900.0
"""How long after its end a machine's final bill is waited for."""
MOST_NOTED = 100
"""Number of jobs of a queue that get a new reason for waiting at once; the others get it when they are first."""


@dataclass(frozen=True)
class Disconnector:
    """`shared`: other processes may place machines until they have read the row."""

    ports: Ports
    live: LiveBackends
    store: ConnectionStore
    writer: Writer
    shared: bool

    async def finish_all(self) -> bool:
        """Remove the connections that are being closed and have no machine left. Return whether any was removed."""
        found = await self.ports.db.read(rows.list_connections)
        closing = [each for each in found if each.closing_at is not None]
        return any([await self.finish(each) is not None for each in closing])

    async def finish(self, connection: StoredConnection) -> Sequence[Finding] | None:
        """Remove the connection and return what was cleaned up; None if something is left that needs it."""
        name = connection.name
        await self.writer.write(lambda unit: release_idle_machines(unit, name))
        if not await self.ports.write(lambda conn, now: self._may_finish(conn, connection, now)):
            return None
        findings = await self._clean_up(name)
        if not await self.writer.write(lambda unit: self._remove(unit, name)):
            return None
        for topic in (TOPIC, SCHEDULER):
            self.ports.wakeups.wake(topic)
        return findings

    def _may_finish(self, conn: Connection, connection: StoredConnection, now: float) -> bool:
        since = connection.closing_at
        if since is None or restore_hold.is_held(conn):
            return False
        # A process without the backend cannot clean up, and leaves that to the others for a while.
        wait = SETTLE_SECONDS if connection.name in self.live else ALONE_SECONDS
        if self.shared and now - since < wait:
            return False
        billed = now - BILL_SECONDS if isinstance(self.live.get(connection.name), Meters) else None
        return not rows.is_unfinished(conn, connection.name, billed)

    async def _clean_up(self, name: str) -> Sequence[Finding]:
        """Let the backend remove what it left. A failure is a finding: an unreachable host must not block the end."""
        backend = self.live.get(name)
        if backend is None or not isinstance(backend, Disconnects):
            return ()
        try:
            findings = await self.ports.calls.run(name, backend.clean_up, CLEAN_DEADLINE)
        except CrucibleError as error:
            redact_error(error, self.live.secrets(name))
            findings = [Finding(error.what, ok=False, why=error.why, fix=error.fix)]
        for finding in findings:
            log.info("cleaned up a backend", backend=name, what=finding.what, ok=finding.ok, why=finding.why)
        return findings

    def _remove(self, unit: UnitOfWork, name: str) -> bool:
        if not self.store.remove_closed(unit.conn, name):
            return False
        for queue in list_queues(unit.conn):
            names = backends_of_queue(queue)
            if name in names and all(other == name or other not in self.live for other in names):
                for job in first_in_queue(unit.conn, queue, MOST_NOTED):
                    unit.record_wait(job, why_not_connected(names))
        return True
