"""Whether the store can be used, for `/readyz`."""

from __future__ import annotations

import asyncio

import structlog

from crucible.control.runtime.ports import Ports
from crucible.core.errors import CrucibleError

LANE = "store check"
"""A lane of its own: a store that hangs delays no other work, and other work does not delay the answer."""
CHECK_DEADLINE = 2.0
"""Shorter than what a probe for readiness waits."""
REMEMBERED_SECONDS = 5.0
"""Anyone may ask, as often as they like."""

log = structlog.get_logger(__name__)


class StoreHealth:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._one_at_a_time = asyncio.Lock()
        self._checked_at: float | None = None
        self._error: CrucibleError | None = None

    async def error(self) -> CrucibleError | None:
        """Return why the store cannot be used, or None. The result is cached for a few seconds."""
        async with self._one_at_a_time:
            now = self._ports.clock.steady()
            if self._checked_at is None or now - self._checked_at >= REMEMBERED_SECONDS:
                self._note(await self._check())
                self._checked_at = self._ports.clock.steady()
            return self._error

    async def _check(self) -> CrucibleError | None:
        try:
            await self._ports.calls.run(LANE, self._ports.store.check, CHECK_DEADLINE)
        except CrucibleError as error:
            return error
        return None

    def _note(self, error: CrucibleError | None) -> None:
        if error is not None and self._error is None:
            log.error("the store cannot be used", what=error.what, why=error.why, fix=error.fix, code=error.code)
        elif error is None and self._error is not None:
            log.info("the store can be used again")
        self._error = error
