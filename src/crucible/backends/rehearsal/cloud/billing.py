"""The cost of an instance, from its segments, in integers.

The rule: the seconds it ran, rounded up to the type's granularity, at least its minimum. Seconds that rounding and
minimum add are charged at the last rate. The sum is rounded up to a whole micro-dollar once.
"""

from __future__ import annotations

from collections.abc import Sequence

from .catalogue import InstanceType
from .records import Segment

HOUR = 3600


def seconds_used(segments: Sequence[Segment], now: int) -> int:
    return sum(_seconds(segment, now) for segment in segments)


def seconds_billed(segments: Sequence[Segment], kind: InstanceType, now: int) -> int:
    if not segments:
        return 0
    steps = _divide_up(seconds_used(segments, now), kind.granularity_seconds)
    return max(steps * kind.granularity_seconds, kind.minimum_seconds)


def micro_dollars(segments: Sequence[Segment], kind: InstanceType, now: int) -> int:
    if not segments:
        return 0
    added = seconds_billed(segments, kind, now) - seconds_used(segments, now)
    rated = sum(_seconds(segment, now) * segment.rate for segment in segments)
    return _divide_up(rated + added * segments[-1].rate, HOUR)


def _seconds(segment: Segment, now: int) -> int:
    return max((now if segment.until is None else segment.until) - segment.since, 0)


def _divide_up(value: int, by: int) -> int:
    return (value + by - 1) // by
