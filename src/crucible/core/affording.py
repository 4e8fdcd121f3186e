"""Affording: what the most that a job may cost buys at an offer. Pure; money is in micro-dollars."""

from __future__ import annotations

from crucible.core.offers import Billing, Offer
from crucible.core.pricing import MICROS, forecast
from crucible.core.resources import MAX_SECONDS, Resources

LEAST_SECONDS = 1.0
"""A try that is shorter is none."""
RAISE_IT = "Raise max_cost_usd (--max-cost), ask for less, or name a cheaper place."


def bought(money: int, rate: int, billing: Billing) -> int:
    """Seconds of a machine that cost no more than this, as its provider bills them; 0 for less than he bills at least.

    The rate is above zero: what is free is not bought.
    """
    seconds = money * 3600 // (rate * billing.granularity) * billing.granularity
    return seconds if seconds >= billing.minimum else 0


def seconds_at(max_cost: int | None, offer: Offer) -> float | None:
    """How long a try may run there: its machine bills while it starts, too. None: as long as it likes."""
    if max_cost is None or not offer.rate:
        return None
    return min(bought(max_cost, offer.rate, offer.billing) - offer.startup_seconds, MAX_SECONDS)


def too_dear(max_cost: int | None, offer: Offer) -> str:
    """Why not even the shortest try can be paid there; empty when one can."""
    seconds = seconds_at(max_cost, offer)
    if max_cost is None or seconds is None or seconds >= LEAST_SECONDS:
        return ""
    least = forecast(offer.startup_seconds + LEAST_SECONDS, offer.rate, offer.billing)
    return f"would cost {usd(least)} at least, more than {usd(max_cost)}"


def within(need: Resources, max_cost: int | None, offer: Offer) -> Resources:
    """The same, ended when the money is spent; for an offer that is not too dear."""
    seconds = seconds_at(max_cost, offer)
    if seconds is None or (need.seconds is not None and need.seconds <= seconds):
        return need
    return need.model_copy(update={"seconds": seconds})


def usd(micros: int) -> str:
    """`$1.35`, `$0.0016`, `$0.000001`: whole cents, or what there is below them."""
    cents = f"${micros / MICROS:.2f}"
    return cents if micros >= MICROS or not micros % (MICROS // 100) else f"${micros / MICROS:.6f}".rstrip("0")
