from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.budget import affordable_seconds, billable_seconds, limit_to_budget, usd, why_over_budget
from crucible.core.compute.offers import Billing, Offer
from crucible.core.compute.pricing import Segment, machine_cost
from crucible.core.compute.resources import MAX_SECONDS, Capacity, GiB, Resources

HOURLY = 3_600_000
"""A thousand micro-dollars a second."""


def offer(rate: int = HOURLY, **more: object) -> Offer:
    return Offer("cloud", "north", "small", Capacity(cpus=2, memory_bytes=4 * GiB), rate, **more)  # type: ignore[arg-type]


@given(
    money=st.integers(0, 10**9),
    rate=st.integers(1, 10**9),
    step=st.sampled_from([1, 60, 3600]),
    minimum=st.sampled_from([0, 60, 600]),
)
def test_what_is_bought_costs_no_more_and_a_step_longer_would(money: int, rate: int, step: int, minimum: int) -> None:
    billing = Billing(step, minimum)

    def bill(seconds: int) -> int:
        return machine_cost([Segment(0.0, float(seconds), rate)], billing, float(seconds))

    seconds = billable_seconds(money, rate, billing)
    assert seconds == 0 or bill(seconds) <= money
    assert bill(max(seconds, minimum) + step if seconds else max(1, minimum)) > money


def test_a_machine_bills_while_it_starts() -> None:
    assert affordable_seconds(100_000, offer()) == 100
    assert affordable_seconds(100_000, offer(startup_seconds=30.0)) == 70
    assert affordable_seconds(10**12, offer(1)) == MAX_SECONDS


def test_what_is_free_is_not_bounded() -> None:
    assert affordable_seconds(0, offer(0)) is None
    assert why_over_budget(0, offer(0)) == ""
    assert affordable_seconds(None, offer()) is None


def test_not_even_the_shortest_try() -> None:
    assert why_over_budget(1, offer()) == "would cost $0.001 at least, more than $0.000001"
    assert why_over_budget(0, offer(startup_seconds=9.0)) == "would cost $0.01 at least, more than $0.00"
    assert why_over_budget(50_000, offer(billing=Billing(60, 60))) == "would cost $0.06 at least, more than $0.05"
    assert why_over_budget(60_000, offer(billing=Billing(60, 60))) == ""


def test_the_shorter_of_two_limits_holds() -> None:
    need = Resources(cpus=1, seconds=50)
    assert limit_to_budget(need, 100_000, offer()) is need
    assert limit_to_budget(need, 20_000, offer()).seconds == 20
    assert limit_to_budget(Resources(cpus=1), 20_000, offer()) == Resources(cpus=1, seconds=20)
    assert limit_to_budget(Resources(), None, offer()) == Resources()


def test_money_in_words() -> None:
    assert [usd(n) for n in (0, 1, 1_600, 10_000, 1_350_000, 1_356_789)] == [
        "$0.00", "$0.000001", "$0.0016", "$0.01", "$1.35", "$1.36",
    ]  # fmt: skip
