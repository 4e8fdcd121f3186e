"""Bursts: which of many wrong tries are worth a line of their own, so that guessing cannot fill the audit log."""

from __future__ import annotations

from collections.abc import Callable

QUIET_SECONDS = 900.0
"""After so long without another, the next one begins a new burst."""


class Bursts:
    """Counts by key. The caller chooses keys of which there are few."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, tuple[int, float]] = {}

    def one_more(self, key: str) -> int | None:
        """How many it makes in its burst, if that is told: the first, the tenth, the hundredth and so on; else None."""
        count, last = self._seen.get(key, (0, 0.0))
        now = self._now()
        count = 1 if now - last > QUIET_SECONDS else count + 1
        self._seen[key] = (count, now)
        return count if str(count).strip("0") == "1" else None
