"""Notify watchers of a job, or of all jobs, that something changed. Only a hint: watchers then read the rows.

What one process publishes reaches the watchers of all processes that share its wake-ups.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from crucible.control.runtime.ports import Wakeups

TOPIC = "feed"


class Hint(enum.StrEnum):
    """Which of a job's streams has something new."""

    EVENT = "event"
    LOG = "log"
    POINTS = "points"
    PROGRESS = "progress"


_HINTS = {hint.value: hint for hint in Hint}


class Watch:
    """One watcher. Hints that come while it is busy are kept, merged, until it asks."""

    def __init__(self) -> None:
        self._hints: set[Hint] = set()
        self._changed = asyncio.Event()

    def notify(self, hints: Iterable[Hint]) -> None:
        self._hints.update(hints)
        self._changed.set()

    async def changed(self, timeout: float) -> set[Hint]:
        """Return what changed since the last call; empty if nothing did within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return set()
        hints, self._hints = self._hints, set()
        self._changed.clear()
        return hints


class Feed:
    def __init__(self, wakeups: Wakeups | None = None) -> None:
        self._watches: dict[str | None, set[Watch]] = {}
        self._wakeups = wakeups
        if wakeups is not None:
            wakeups.subscribe_remote(f"{TOPIC}:", self._on_remote)

    @contextmanager
    def watch(self, job: str | None) -> Iterator[Watch]:
        """Watch one job, or with None all jobs, until the context ends."""
        watch = Watch()
        self._watches.setdefault(job, set()).add(watch)
        try:
            yield watch
        finally:
            watchers = self._watches[job]
            watchers.discard(watch)
            if not watchers:
                del self._watches[job]

    def publish(self, job: str, hints: Iterable[Hint]) -> None:
        told = set(hints)
        self._notify(job, told)
        if self._wakeups is not None:
            self._wakeups.wake(f"{TOPIC}:{job}:{','.join(sorted(told))}")

    def _notify(self, job: str, hints: set[Hint]) -> None:
        for watch in (*self._watches.get(job, ()), *self._watches.get(None, ())):
            watch.notify(hints)

    def _on_remote(self, topic: str | None) -> None:
        """Pass on what another process published; after a gap (None) every watcher checks everything."""
        if topic is None:
            for watches in self._watches.values():
                for watch in watches:
                    watch.notify(Hint)
            return
        _, job, hints = topic.split(":", 2)
        self._notify(job, {_HINTS[name] for name in hints.split(",") if name in _HINTS})
