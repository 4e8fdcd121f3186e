"""The loops of the control plane. Each round is level-triggered: it reads the state and acts on it.

A wake-up starts a round sooner; without one it starts anyway. No error of a round ends its loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from crucible.control.runtime.ports import Ports
from crucible.core.errors import CrucibleError

log = structlog.get_logger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 8.0
"""Short compared with the time until another process takes over, so work resumes soon after an outage."""


@dataclass(frozen=True)
class Loop:
    """`round` returns how many seconds may pass before the next one."""

    name: str
    topic: str
    round: Callable[[], Awaitable[float]]


class Loops:
    def __init__(self, ports: Ports, loops: list[Loop]) -> None:
        self._ports = ports
        self._loops = loops
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(loop), name=loop.name) for loop in self._loops]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _run(self, loop: Loop) -> None:
        failed = 0
        with self._ports.wakeups.listening(loop.topic) as listener:
            while True:
                wait = await self._round(loop)
                failed = failed + 1 if wait is None else 0
                await listener.wait(retry_delay(failed) if wait is None else wait)

    async def _round(self, loop: Loop) -> float | None:
        """Run one round; return the seconds until the next, or None if it failed."""
        try:
            return await loop.round()
        except CrucibleError as error:
            log.warning("round failed", loop=loop.name, error=str(error), code=error.code)
        except Exception:
            log.exception("round broke", loop=loop.name)
        return None


def retry_delay(failed: int) -> float:
    """Return the seconds before the next round after this number of consecutive failures."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failed - 1, 10), LONGEST_RETRY_SECONDS)
