"""How long a job's budget lasts at an offer. Money is in micro-dollars."""

from __future__ import annotations

from crucible.core.compute.offers import Billing, Offer
from crucible.core.compute.pricing import MICROS, forecast
from crucible.core.compute.resources import MAX_SECONDS, Resources

LEAST_SECONDS = 1.0
"""Minimum useful run time."""
RAISE_IT = "Raise max_cost_usd (--max-cost), ask for less, or name a cheaper backend."


def billable_seconds(money: int, rate: int, billing: Billing) -> int:
    """Return how many seconds of a machine this buys, as its provider bills them; 0 below the minimum bill.

    The rate must be above zero.
    """
    seconds = money * 3600 // (rate * billing.granularity) * billing.granularity
    return seconds if seconds >= billing.minimum else 0


def affordable_seconds(max_cost: int | None, offer: Offer) -> float | None:
    """Return how long an attempt may run there after its start, which is billed too. None: no limit."""
    if max_cost is None or not offer.rate:
        return None
    return min(billable_seconds(max_cost, offer.rate, offer.billing) - offer.startup_seconds, MAX_SECONDS)


def why_over_budget(max_cost: int | None, offer: Offer) -> str:
    """Return why the budget does not pay for even the shortest attempt there; empty if it does."""
    seconds = affordable_seconds(max_cost, offer)
    if max_cost is None or seconds is None or seconds >= LEAST_SECONDS:
        return ""
    least = forecast(offer.startup_seconds + LEAST_SECONDS, offer.rate, offer.billing)
    return f"would cost {usd(least)} at least, more than {usd(max_cost)}"


def limit_to_budget(need: Resources, max_cost: int | None, offer: Offer) -> Resources:
    """Return the need with its time limited to what the budget pays for. The offer must not exceed the budget."""
    seconds = affordable_seconds(max_cost, offer)
    if seconds is None or (need.seconds is not None and need.seconds <= seconds):
        return need
    return need.model_copy(update={"seconds": seconds})


def usd(micros: int) -> str:
    """Format as `$1.35`, `$0.0016` or `$0.000001`: whole cents, or up to six decimals for amounts below a dollar."""
    cents = f"${micros / MICROS:.2f}"
    return cents if micros >= MICROS or not micros % (MICROS // 100) else f"${micros / MICROS:.6f}".rstrip("0")
