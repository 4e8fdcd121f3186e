"""Time on a machine that may sleep: the boot-time clock, how long nobody has answered, when the machine ends."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

JUMP_SECONDS = 60.0
AWAKE_SECONDS = 30.0
"""How long after a jump the network may need to be there again."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime() -> float:
    """Seconds on a clock that no one sets and that goes on while the machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def boot_id() -> str:
    """Which boot the boot-time clock counts from; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True)
class Deadline:
    """When the machine ends: `at` on the boot-time clock, `total` seconds after that was learned."""

    at: float
    total: float

    @classmethod
    def after(cls, seconds: float | None, now: float) -> Deadline | None:
        return None if seconds is None else cls(now + seconds, max(0.0, seconds))

    def to_dict(self, boot: str) -> dict[str, object]:
        return {"at": self.at, "total": self.total, "boot": boot}

    @classmethod
    def from_dict(cls, doc: object, boot: str) -> Deadline | None:
        """None also for a deadline of another boot, whose clock is gone. Raises ValueError."""
        if not isinstance(doc, dict) or doc.get("boot") != boot:
            return None
        return cls(float(str(doc.get("at"))), float(str(doc.get("total"))))


@dataclass(frozen=True)
class Silence:
    """How long the control plane has been silent. Call `tick` at least every few seconds.

    A jump between two ticks (the machine slept, the process was frozen) says nothing about the other side:
    the silence counts again only once a contact has been tried that began well after it.
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
        """A contact was made."""
        return Silence(now, now)

    def failed(self, now: float, began: float) -> Silence:
        """A contact was tried, from `began` until now, and not made."""
        ticked = self.tick(now)
        if ticked.jumped_at is not None and began >= ticked.jumped_at + AWAKE_SECONDS:
            return replace(ticked, jumped_at=None)
        return ticked

    def has_lasted(self, seconds: float) -> bool:
        """Whether it may be held against the other side that it was silent for `seconds`."""
        return self.jumped_at is None and self.last_tick - self.last_contact >= seconds
