"""What is left of a machine's time, shared between the program that saves and the runner that sends."""

from __future__ import annotations

from collections.abc import Iterable

from crucible.agent.clock import Deadline

SEND_SECONDS, SEND_SHARE = 2.0, 0.25
"""Of the time that is left, what is kept for sending: so many seconds, or such a share."""
LEAST_PATIENCE = 1.0
SUSPEND_LEAST, SUSPEND_MOST, SUSPEND_SHARE = 30.0, 300.0, 0.05


def kill_delay(grace: float, now: float, ends: Iterable[float | None]) -> float:
    """Seconds between TERM and KILL: the grace, or less where the machine goes before what is saved is sent."""
    known = [at for at in ends if at is not None]
    if not known:
        return grace
    left = min(known) - now
    return min(grace, max(LEAST_PATIENCE, left - max(SEND_SECONDS, SEND_SHARE * left)))


def suspend_time(deadline: Deadline, grace: float) -> float:
    """When the program is to stop so that it can save, and what it saved be sent, before the deadline."""
    lead = grace + max(SUSPEND_LEAST, min(SUSPEND_MOST, SUSPEND_SHARE * deadline.total))
    # Where the whole is hardly longer than that, half of it is the program's.
    return deadline.at - min(lead, deadline.total / 2)


def merge_deadlines(new: Deadline | None, known: Deadline | None) -> Deadline | None:
    """The newer deadline with the longest total: what is told later is what is left, not the whole."""
    if new is None or known is None:
        return new
    return Deadline(new.at, max(new.total, known.total))
