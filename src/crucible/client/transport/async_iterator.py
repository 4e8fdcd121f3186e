"""Runs a blocking iterator in a thread of its own, to be read by an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

Stop = Callable[[], bool]
MAX_PENDING = 1000
"""Items that may wait for the reader before the thread waits too."""


async def iterate_in_thread(
    items: Callable[[Stop], Iterator[T]], *, replaces: Callable[[T, T], bool] = lambda old, new: False
) -> AsyncGenerator[T, None]:
    """Yield what `items(stop)` yields. When the reader stops, `stop()` becomes true; the iterator must check it.

    An item that waits to be read is replaced by a later one where `replaces(earlier, later)`.
    """
    queue = _Queue(asyncio.get_running_loop(), replaces)
    threading.Thread(target=queue.fill, args=(items,), name="crucible-follow", daemon=True).start()
    try:
        while (items_read := await queue.read()) is not None:
            for item in items_read:
                yield item
    finally:
        queue.stop()


class _Queue(Generic[T]):
    """A queue that one thread fills and one event loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, replaces: Callable[[T, T], bool]) -> None:
        self._loop = loop
        self._replaces = replaces
        self._changed = threading.Condition()
        self._filled = asyncio.Event()
        self._waiting: deque[T] = deque()
        self._done = self._stopped = False
        self._error: BaseException | None = None

    # In the thread

    def fill(self, items: Callable[[Stop], Iterator[T]]) -> None:
        try:
            for item in items(lambda: self._stopped):
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  raised again in `read`
            self._error = error
        finally:
            self._done = True
            self._notify()

    def _put(self, item: T) -> bool:
        """Add an item, waiting while the reader is far behind. Return False once the reader has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._waiting) < MAX_PENDING)
            if self._waiting and self._replaces(self._waiting[-1], item):
                self._waiting.pop()
            self._waiting.append(item)
        self._notify()
        return not self._stopped

    def _notify(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:  # the loop is closed, so nothing reads any more
            self._stopped = True

    # In the loop

    async def read(self) -> list[T] | None:
        """Return the waiting items, at least one; None after the last. Raises what the iterator raised."""
        while True:
            self._filled.clear()
            done = self._done  # before the items: after it is set none is added
            with self._changed:
                waiting = list(self._waiting)
                self._waiting.clear()
                self._changed.notify()
            if waiting:
                return waiting
            if done:
                break
            await self._filled.wait()
        if self._error is not None:
            raise self._error
        return None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
