"""Bring the backends of this process in line with the connections in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from sqlalchemy import Connection

from crucible.backends.base import Backend, Leaves
from crucible.backends.settings import BackendSettings
from crucible.control.connections import rows
from crucible.control.connections.factory import BackendFactory
from crucible.control.connections.live import LiveBackends
from crucible.control.connections.redaction import redact_error
from crucible.control.connections.rows import StoredConnection
from crucible.control.connections.store import ConnectionStore
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.offers import OfferBook
from crucible.core.errors import CrucibleError

log = structlog.get_logger(__name__)

TOPIC = "backends"
MAKE_DEADLINE = 10.0
LEAVE_DEADLINE = 5.0
RETRY_SECONDS = 60.0
"""Between two attempts to make a backend that could not be made."""

Stamp = tuple[int, float] | None
"""`StoredConnection.stamp` of the settings that a backend was made from; None: from the configuration alone."""
CheckDeployment = Callable[[Connection, float, frozenset[str]], None]


class ConnectionSync:
    """Keeps `live` as the database says. `problems`: by backend, why it could not be made in this process."""

    def __init__(
        self,
        ports: Ports,
        live: LiveBackends,
        offers: OfferBook,
        store: ConnectionStore,
        factory: BackendFactory,
        check_deployment: CheckDeployment,
        *,
        shared: bool,
    ) -> None:
        self._ports = ports
        self._live = live
        self._offers = offers
        self._store = store
        self._factory = factory
        self._check_deployment = check_deployment
        self._shared = shared
        self._made: dict[str, Stamp] = {name: None for name in factory.configured if name in live}
        self._failed: dict[str, tuple[Stamp, float]] = {}
        self._lock = asyncio.Lock()
        self.problems: dict[str, CrucibleError] = {}

    async def sync(self) -> bool:
        """Make new and changed backends, and drop those that are not connected any more. Return whether any was."""
        async with self._lock:
            before = self._live.revision
            found = {each.name: each for each in await self._ports.db.read(rows.list_connections)}
            names = {*self._factory.configured, *found}
            await asyncio.gather(*(self._apply(name, found.get(name)) for name in sorted(names)))
            for name in sorted({*self._made, *self.problems} - names):
                await self._drop(name)
            return self._live.revision != before

    async def _apply(self, name: str, connection: StoredConnection | None) -> None:
        stamp = None if connection is None else connection.stamp
        closing = connection is not None and connection.closing_at is not None
        if name in self._made and self._made[name] == stamp:
            self._live.set_closing(name, closing)
            return
        failed_stamp, failed_at = self._failed.get(name, (None, float("-inf")))
        if name in self.problems and failed_stamp == stamp and self._ports.clock.now() - failed_at < RETRY_SECONDS:
            return
        try:
            backend, settings = await self._make(name, connection)
        except CrucibleError as error:
            log.warning("a backend cannot be connected", backend=name, error=str(error))
            self.problems[name] = error
            self._failed[name] = (stamp, self._ports.clock.now())
            return
        self._live.put(name, backend, settings, closing=closing)
        self._offers.forget(name)
        self._made[name] = stamp
        self.problems.pop(name, None)
        log.info("a backend is connected", backend=name)

    async def _make(self, name: str, connection: StoredConnection | None) -> tuple[Backend, BackendSettings]:
        stored = (
            {} if connection is None else await self._ports.db.read(lambda conn: self._store.values(conn, connection))
        )
        settings = self._factory.fill(name, stored).settings
        return await self.make(name, settings), settings

    async def make(self, name: str, settings: BackendSettings) -> Backend:
        """Return a new backend. Raises an error without the secrets if it cannot be made, or not in this process."""
        lane = f"connect {name}"
        try:
            backend = await self._ports.calls.run(lane, lambda: self._factory.make(name, settings), MAKE_DEADLINE)
        except CrucibleError as error:
            redact_error(error, settings.secrets().values())
            raise
        if backend.capabilities.reach.is_here:
            nearby = frozenset([name, *(each for each, one in self._live.items() if one.capabilities.reach.is_here)])
            await self._ports.write(lambda conn, now: self._check_deployment(conn, now, nearby))
        return backend

    async def _drop(self, name: str) -> None:
        backend = self._live.drop(name)
        self._offers.forget(name)
        self._made.pop(name, None)
        self._failed.pop(name, None)
        self.problems.pop(name, None)
        log.info("a backend is disconnected", backend=name)
        if backend is not None and isinstance(backend, Leaves) and not self._shared:
            try:
                await self._ports.calls.run(name, backend.leave, LEAVE_DEADLINE)
            except CrucibleError as error:
                log.warning("leaving a backend failed", backend=name, error=str(error))
