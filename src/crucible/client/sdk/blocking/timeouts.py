"""How long somebody waits for a job, and what they are told when that was not enough."""

from __future__ import annotations

from crucible.client.request.checks import check_number
from crucible.client.sdk.status import JobStatus
from crucible.core.compute.resources import MAX_SECONDS
from crucible.core.errors import TimedOut


def check_timeout(timeout: object) -> float | None:
    """`timeout` in seconds; None is for ever."""
    check_number("timeout", timeout, 0, MAX_SECONDS)
    return float(timeout) if isinstance(timeout, int | float) else None


def still_running(status: JobStatus, seconds: float | None) -> TimedOut:
    return TimedOut(
        f"{status.id} has not ended within {seconds or 0:g} seconds.",
        why=f"It is {status.phase.value}. {status.message}".strip(),
        fix="It goes on. Wait longer, or cancel it.",
    )
