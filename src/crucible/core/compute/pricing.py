"""Exact costs in integer micro-dollars, as a pure function of price segments and a billing rule.

Rates are micro-dollars per hour. A machine's cost is computed from its segments whenever it is needed and
rounded up once, at the end; nothing is accumulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from crucible.core.compute.offers import Billing

MICROS = 1_000_000


@dataclass(frozen=True)
class Segment:
    """A period of time at one rate. `ends_at` is None while it lasts.

    `instance` separates what a provider meters separately: usually a machine is one instance.
    """

    starts_at: float
    ends_at: float | None
    rate: int
    instance: str = ""


def machine_cost(segments: Sequence[Segment], billing: Billing, now: float) -> int:
    """Return the cost of a machine so far in micro-dollars: the sum of its instances, each billed by itself."""
    instances: dict[str, list[Segment]] = {}
    for segment in segments:
        instances.setdefault(segment.instance, []).append(segment)
    return sum(_instance_cost(parts, billing, now) for parts in instances.values())


def _instance_cost(segments: Sequence[Segment], billing: Billing, now: float) -> int:
    """Return the exact cost of an instance: its whole time is rounded up to the granularity and the minimum.

    The added time is charged at the last segment's rate.
    """
    lengths = [_length(segment, now) for segment in segments]
    used = sum(lengths, Fraction(0))
    billed = max(_round_up(used, billing.granularity), Fraction(billing.minimum))
    exact = sum((length * segment.rate for length, segment in zip(lengths, segments, strict=True)), Fraction(0))
    exact += (billed - used) * segments[-1].rate
    return _ceil(exact / 3600)


def forecast(seconds: float, rate: int, billing: Billing) -> int:
    """Estimate the cost of a period in micro-dollars, to about one; much faster than the exact cost."""
    billed = max(math.ceil(seconds / billing.granularity) * billing.granularity, billing.minimum)
    return math.ceil(billed * rate / 3600)


def share(total: int, weights: Sequence[float]) -> list[int]:
    """Split `total` by weight into whole micro-dollars that add up to it exactly (largest remainder).

    All parts are zero if all weights are.
    """
    exact_weights = [Fraction(weight) for weight in weights]
    whole = sum(exact_weights, Fraction(0))
    if not whole:
        return [0] * len(weights)
    exact = [total * weight / whole for weight in exact_weights]
    parts = [int(part) for part in exact]
    order = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts


def remaining_cost(rate: int, seconds: float | None) -> int | None:
    """Return the cost still to come in micro-dollars; None unless the remaining time is known and finite."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return _ceil(max(Fraction(seconds), Fraction(0)) * rate / 3600)


def format_usd(micros: int) -> str:
    """Format as dollars with six decimals, exactly."""
    whole, rest = divmod(abs(micros), MICROS)
    return f"{'-' if micros < 0 else ''}{whole}.{rest:06d}"


def _length(segment: Segment, now: float) -> Fraction:
    end = now if segment.ends_at is None else segment.ends_at
    return max(Fraction(end) - Fraction(segment.starts_at), Fraction(0))


def _round_up(value: Fraction, step: int) -> Fraction:
    return Fraction(_ceil(value / step) * step)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
