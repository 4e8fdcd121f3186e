"""A signal that wakes all current waiters. Unlike asyncio.Event it has no state to clear."""

from __future__ import annotations

import asyncio


class ChangeSignal:
    """`notify` wakes every task that is in `wait` at that moment, and no later one."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future
