from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.offers import Billing
from crucible.core.compute.pricing import Segment, forecast, format_usd, machine_cost, remaining_cost, share

PER_SECOND = Billing()
HOURLY = Billing(granularity=3600)
DOLLAR = 1_000_000

times = st.floats(0, 2e9, allow_nan=False)
lengths = st.integers(0, 10**7)
rates = st.integers(0, 10**9)
billings = st.builds(Billing, st.sampled_from([1, 60, 3600]), st.integers(0, 7200))


def stretch(seconds: float, rate: int, start: float = 1000.0) -> list[Segment]:
    return [Segment(start, start + seconds, rate)]


@pytest.mark.parametrize(
    ("seconds", "rate", "billing", "micros"),
    [
        (3600, 526_000, PER_SECOND, 526_000),
        (1, 3600, PER_SECOND, 1),
        (1, 1, PER_SECOND, 1),
        (0, DOLLAR, PER_SECOND, 0),
        (0.25, 3600, PER_SECOND, 1),
        (1, DOLLAR, HOURLY, DOLLAR),
        (3600, DOLLAR, HOURLY, DOLLAR),
        (3601, DOLLAR, HOURLY, 2 * DOLLAR),
        (61, 3600, Billing(granularity=60), 120),
        (5, 3600, Billing(minimum=60), 60),
        (0, 3600, Billing(minimum=60), 60),
        (90, 3600, Billing(minimum=60), 90),
        (90, 3600, Billing(granularity=60, minimum=60), 120),
    ],
)
def test_the_cost_of_one_stretch(seconds: float, rate: int, billing: Billing, micros: int) -> None:
    assert machine_cost(stretch(seconds, rate), billing, now=1e9) == micros


def test_no_segments_cost_nothing() -> None:
    assert machine_cost([], Billing(minimum=60), 5.0) == 0


def test_a_segment_that_runs_is_charged_until_now() -> None:
    running = [Segment(1000, None, 3600)]
    assert machine_cost(running, PER_SECOND, 1010) == 10
    assert machine_cost(running, PER_SECOND, 990) == 0


def test_what_rounding_adds_is_charged_at_the_last_rate() -> None:
    segments = [Segment(0, 10, 3600), Segment(10, 15, 7200)]
    assert machine_cost(segments, PER_SECOND, 99) == 20
    assert machine_cost(segments, Billing(granularity=60), 99) == 20 + 2 * 45
    assert machine_cost(segments, Billing(minimum=20), 99) == 20 + 2 * 5


@given(st.lists(st.tuples(lengths, rates), min_size=1, max_size=8))
def test_the_cost_is_the_exact_sum_rounded_up_once(parts: list[tuple[int, int]]) -> None:
    segments, at = [], 0
    for length, rate in parts:
        segments.append(Segment(float(at), float(at + length), rate))
        at += length
    exact = sum((Fraction(length * rate, 3600) for length, rate in parts), Fraction(0))
    assert machine_cost(segments, PER_SECOND, 1e12) == math.ceil(exact)


@given(times, lengths, rates, billings, st.integers(1, 50))
def test_asking_often_never_adds_anything(start: float, length: int, rate: int, billing: Billing, cuts: int) -> None:
    running = [Segment(start, None, rate)]
    end = start + length
    for cut in range(cuts):
        machine_cost(running, billing, start + length * cut / cuts)
    assert machine_cost(running, billing, end) == machine_cost([Segment(start, end, rate)], billing, 1e12)


@given(st.integers(0, 10**9), lengths, lengths, rates, billings)
def test_a_cut_at_the_same_rate_costs_the_same(
    start: int, before: int, after: int, rate: int, billing: Billing
) -> None:
    middle, end = float(start + before), float(start + before + after)
    whole = [Segment(float(start), end, rate)]
    cut = [Segment(float(start), middle, rate), Segment(middle, end, rate)]
    assert machine_cost(cut, billing, end) == machine_cost(whole, billing, end)


@given(times, st.floats(0, 1e7), st.floats(0, 1e7), rates, billings)
def test_cost_never_falls_as_time_passes(start: float, one: float, more: float, rate: int, billing: Billing) -> None:
    running = [Segment(start, None, rate)]
    assert machine_cost(running, billing, start + one) <= machine_cost(running, billing, start + one + more)


weights = st.lists(st.floats(0, 1e12, allow_nan=False), min_size=1, max_size=20)


@given(st.integers(0, 10**15), weights)
def test_shares_add_up_to_the_total(total: int, parts: list[float]) -> None:
    shares = share(total, parts)
    assert sum(shares) == (total if any(parts) else 0)
    assert len(shares) == len(parts)


@given(st.integers(0, 10**12), weights)
def test_each_share_is_within_one_of_the_exact_part(total: int, parts: list[float]) -> None:
    whole = sum(map(Fraction, parts), Fraction(0))
    if not whole:
        return
    for got, weight in zip(share(total, parts), parts, strict=True):
        assert abs(got - total * Fraction(weight) / whole) < 1
        assert got >= 0
        assert weight > 0 or got == 0


def test_shares_of_equals_differ_by_the_indivisible_rest_alone() -> None:
    assert share(10, [1, 1, 1]) == [4, 3, 3]
    assert share(0, [1, 2]) == [0, 0]
    assert share(5, []) == []
    assert share(5, [0, 0]) == [0, 0]


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [(None, None), (3600, 7), (1, 1), (0, 0), (-5, 0), (math.inf, None), (math.nan, None)],
)
def test_what_is_still_to_come(seconds: float | None, micros: int | None) -> None:
    assert remaining_cost(7, seconds) == micros


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0.000000"),
        (1, "0.000001"),
        (526_000, "0.526000"),
        (12 * DOLLAR + 5, "12.000005"),
        (-1, "-0.000001"),
    ],
)
def test_dollars_are_written_exactly(micros: int, text: str) -> None:
    assert format_usd(micros) == text


@given(
    seconds=st.floats(0, 1e7, allow_subnormal=False),
    rate=st.integers(0, 10**9),
    billing=st.builds(Billing, st.integers(1, 3600), st.integers(0, 7200)),
)
def test_a_forecast_is_what_the_bill_would_be(seconds: float, rate: int, billing: Billing) -> None:
    exact = machine_cost([Segment(0.0, seconds, rate)], billing, seconds)
    assert forecast(seconds, rate, billing) == pytest.approx(exact, abs=1, rel=1e-9)
