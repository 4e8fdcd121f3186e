"""Time on a machine that may sleep: the boot-time clock, and how long nobody has answered."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

JUMP_SECONDS = 60.0


def boottime() -> float:
    """Seconds on a clock that no one sets and that goes on while the machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True)
class Silence:
    """How long the control plane has been silent. Call `tick` at least every few seconds.

    A jump between two ticks (the machine slept, the process was frozen) says nothing about the other side:
    the silence counts again only once a contact has been tried since.
    """

    last_contact: float
    last_tick: float
    jumped: bool = False

    @classmethod
    def begin(cls, now: float) -> Silence:
        return cls(now, now)

    def tick(self, now: float) -> Silence:
        return replace(self, last_tick=now, jumped=self.jumped or now - self.last_tick > JUMP_SECONDS)

    def made(self, now: float) -> Silence:
        """A contact was made."""
        return Silence(now, now)

    def failed(self, now: float) -> Silence:
        """A contact was tried and not made."""
        return replace(self, last_tick=now, jumped=False)

    def lasts(self, seconds: float) -> bool:
        """Whether it may be held against the other side that it was silent for `seconds`."""
        return not self.jumped and self.last_tick - self.last_contact >= seconds
