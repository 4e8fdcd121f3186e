"""The cloud's clock: seconds since the epoch, which may run faster than the computer's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Anchor:
    """One instant on two clocks: `wall` is the computer's, `cloud` ours. Stored, so that time survives restarts."""

    wall: float
    cloud: float
    speed: float

    def cloud_time(self, wall: float) -> float:
        return self.cloud + (wall - self.wall) * self.speed


class Clock:
    def __init__(self, anchor: Anchor, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._latest = anchor.cloud
        self.anchor = anchor

    def now(self) -> float:
        """Return the time. It never goes back, even if the computer's clock is set back."""
        self._latest = max(self._latest, self.anchor.cloud_time(self._wall()))
        return self._latest

    def at(self, wall: float) -> float:
        """Convert a time of the computer's clock to the cloud's."""
        return self.anchor.cloud_time(wall)

    def wall_seconds(self, seconds: float) -> float:
        """Convert a duration from the cloud's seconds to the computer's."""
        return seconds / self.anchor.speed

    def jump(self, seconds: float) -> Anchor:
        """Advance the clock by these seconds at once, and return the new anchor."""
        return self._reset(self.now() + seconds, self.anchor.speed)

    def run_at(self, speed: float) -> Anchor:
        """Continue at this speed, and return the new anchor."""
        return self._reset(self.now(), speed)

    def _reset(self, cloud: float, speed: float) -> Anchor:
        self.anchor = Anchor(self._wall(), cloud, speed)
        return self.anchor
