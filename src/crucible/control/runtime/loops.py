"""The loops that keep the control plane going. Each round is level-triggered: it looks at what is and acts on
that.

A wake-up makes a round start sooner; without one it starts anyway. Nothing a round raises ends its loop.
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
"""Short beside the bounds of a takeover: what was away is back for some seconds before it is asked again."""


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
        """None when it failed."""
        try:
            return await loop.round()
        except CrucibleError as error:
            log.warning("round failed", loop=loop.name, error=str(error), code=error.code)
        except Exception:
            log.exception("round broke", loop=loop.name)
        return None


def retry_delay(failed: int) -> float:
    """Seconds before the next round, when so many have failed one after the other."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failed - 1, 10), LONGEST_RETRY_SECONDS)
