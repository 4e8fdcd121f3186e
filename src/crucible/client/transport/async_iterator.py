"""A blocking iterator, run in a thread of its own and read by an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

Stop = Callable[[], bool]
ROOM = 1000
"""How many items a reader may be behind before the thread waits for it."""


async def iterate_in_thread(
    items: Callable[[Stop], Iterator[T]], *, stands_for: Callable[[T, T], bool] = lambda old, new: False
) -> AsyncGenerator[T, None]:
    """What `items(stop)` yields. Whoever stops reading makes `stop` true, and the thread ends at its next look.

    Of two items that wait to be read, the later takes the place of the earlier where `stands_for(earlier, later)`.
    """
    box = _Queue(asyncio.get_running_loop(), stands_for)
    threading.Thread(target=box.fill, args=(items,), name="crucible-follow", daemon=True).start()
    try:
        while (found := await box.take()) is not None:
            for item in found:
                yield item
    finally:
        box.stop()


class _Queue(Generic[T]):
    """What one thread puts in and one event loop takes out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stands_for: Callable[[T, T], bool]) -> None:
        self._loop = loop
        self._stands_for = stands_for
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
        except BaseException as error:  # noqa: BLE001  it is raised where the items are read
            self._error = error
        finally:
            self._done = True
            self._tell()

    def _put(self, item: T) -> bool:
        """Whether it was wanted; waits while the reader is far behind."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._waiting) < ROOM)
            if self._waiting and self._stands_for(self._waiting[-1], item):
                self._waiting.pop()
            self._waiting.append(item)
        self._tell()
        return not self._stopped

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self._stopped = True

    # In the loop

    async def take(self) -> list[T] | None:
        """What has come, at least one thing; None after the last. Raises what the iterator raised."""
        while True:
            self._filled.clear()
            done = self._done
            with self._changed:
                found = list(self._waiting)
                self._waiting.clear()
                self._changed.notify()
            if found:
                return found
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
