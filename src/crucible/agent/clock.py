"""The boot-time clock, the machine's deadline, and how long the control plane has been silent."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

JUMP_SECONDS = 60.0
AWAKE_SECONDS = 30.0
"""Seconds that the network may need to come back after the machine slept."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime() -> float:
    """Return seconds on a clock that is never set and counts sleep, if the system has one, else the monotonic clock.

    CLOCK_MONOTONIC stands still while a machine sleeps, but leases and rented time do not.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def boot_id() -> str:
    """Return the id of this boot: boot-time clocks of two boots cannot be compared. Empty if unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True)
class Deadline:
    """The end of the machine's time, on the boot-time clock. `total`: the seconds from its beginning to its end."""

    at: float
    total: float

    @classmethod
    def after(cls, seconds: float | None, now: float) -> Deadline | None:
        """Return the deadline `seconds` from now; None if there is none."""
        return None if seconds is None else cls(now + seconds, max(0.0, seconds))

    def to_dict(self, boot: str) -> dict[str, object]:
        return {"at": self.at, "total": self.total, "boot": boot}

    @classmethod
    def from_dict(cls, doc: object, boot: str) -> Deadline | None:
        """Return the deadline; None if there is none, or if it is of another boot. Raises ValueError."""
        if not isinstance(doc, dict) or doc.get("boot") != boot:
            return None
        return cls(float(str(doc.get("at"))), float(str(doc.get("total"))))


@dataclass(frozen=True)
class Silence:
    """How long the control plane has been silent. Call `tick` at least every few seconds.

    A jump between two ticks means that this machine slept, or the process was frozen, which is not a silence of the
    control plane. Silence counts again only after a contact has failed that began well after the jump.
    """

    last_contact: float
    last_tick: float
    jumped_at: float | None = None

    @classmethod
    def begin(cls, now: float) -> Silence:
        return cls(now, now)

    def tick(self, now: float) -> Silence:
        jumped = now - self.last_tick > JUMP_SECONDS
        return Silence(self.last_contact, now, now if jumped else self.jumped_at)

    def contacted(self, now: float) -> Silence:
        """Record that a contact was made."""
        return Silence(now, now)

    def failed(self, now: float, began: float) -> Silence:
        """Record a failed contact that was attempted from `began` until now."""
        ticked = self.tick(now)
        if ticked.jumped_at is not None and began >= ticked.jumped_at + AWAKE_SECONDS:
            return replace(ticked, jumped_at=None)
        return ticked

    def has_lasted(self, seconds: float) -> bool:
        """Return whether the control plane has been silent for `seconds`, not counting sleep of this machine."""
        return self.jumped_at is None and self.last_tick - self.last_contact >= seconds
