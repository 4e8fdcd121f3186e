"""The cloud's own time: seconds since the epoch that may run faster than the computer's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Anchor:
    """When it was `wall` on the computer it was `cloud` here. Kept, so that time goes on over restarts."""

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
        """Never goes back, also when the computer's clock is set back."""
        self._latest = max(self._latest, self.anchor.cloud_time(self._wall()))
        return self._latest

    def at(self, wall: float) -> float:
        """The cloud's time when the computer's is this."""
        return self.anchor.cloud_time(wall)

    def wall_seconds(self, seconds: float) -> float:
        """How long so many seconds of the cloud's take on the computer."""
        return seconds / self.anchor.speed

    def jump(self, seconds: float) -> Anchor:
        """Go ahead by so much at once."""
        return self._reset(self.now() + seconds, self.anchor.speed)

    def run_at(self, speed: float) -> Anchor:
        return self._reset(self.now(), speed)

    def _reset(self, cloud: float, speed: float) -> Anchor:
        self.anchor = Anchor(self._wall(), cloud, speed)
        return self.anchor
