"""The audit refuses each kind of wrong price, by name, and nothing that is right."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.builders import DAY, family, make_row, usd

from crucible.catalog.audit import AGES, audit, drop_refused
from crucible.catalog.findings import Rule
from crucible.catalog.rows import Row
from crucible.catalog.store import shipped
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB


def rules(rows: list[Row], day: date = DAY) -> list[Rule]:
    return [finding.rule for finding in audit(rows, day) if finding.refused]


def spoilt(**changes: Any) -> list[Row]:
    """A sound family and one row more, which is wrong."""
    return [*family(), make_row(**{"region": "us-east-2", "origin": "bad", **changes})]


def test_sound_rows_are_left_alone() -> None:
    assert rules(family()) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"on_demand": 0}, Rule.ZERO),
        ({"on_demand": -1}, Rule.NEGATIVE),
        ({"spot": 0}, Rule.ZERO),
        ({"on_demand": None}, Rule.MISSING),
        ({"on_demand": None, "spot": 0.2}, Rule.MISSING),
        ({"spot": 0.6}, Rule.SPOT_ABOVE_ON_DEMAND),
        ({"reserved_1y": 0.6}, Rule.RESERVED_ABOVE_ON_DEMAND),
        ({"reserved_3y": 0.6}, Rule.RESERVED_ABOVE_ON_DEMAND),
        ({"reserved_1y": 0.3, "reserved_3y": 0.4}, Rule.LONGER_COSTS_MORE),
        ({"on_demand": 5.26, "instance_type": "g4dn.new"}, Rule.GPU_OUTLIER),
        ({"on_demand": 0.0526, "instance_type": "g4dn.new"}, Rule.GPU_OUTLIER),
        ({"on_demand": 1.3}, Rule.REGION_OUTLIER),
        ({"on_demand": 0.2}, Rule.REGION_OUTLIER),
        ({"gpu": "T5"}, Rule.UNKNOWN_GPU),
        ({"gpu": "Tesla T4"}, Rule.UNKNOWN_GPU),
        ({"gpus": 0}, Rule.IMPOSSIBLE_SHAPE),
        ({"gpu": "", "gpus": 1}, Rule.IMPOSSIBLE_SHAPE),
        ({"gpus": -1}, Rule.IMPOSSIBLE_SHAPE),
        ({"gpus": 500}, Rule.IMPOSSIBLE_SHAPE),
        ({"vcpus": 0.0}, Rule.IMPOSSIBLE_SHAPE),
        ({"memory_bytes": 1}, Rule.IMPOSSIBLE_SHAPE),
        ({"memory_bytes": 9000 * GiB}, Rule.IMPOSSIBLE_SHAPE),
        ({"region": ""}, Rule.IMPOSSIBLE_SHAPE),
        ({"interruption": "often"}, Rule.IMPOSSIBLE_SHAPE),
        ({"price_list": "aws-ec3"}, Rule.UNKNOWN_LIST),
        ({"price_list": "modal"}, Rule.UNKNOWN_LIST),
        ({"dated": "yesterday"}, Rule.BAD_DATE),
        ({"dated": ""}, Rule.BAD_DATE),
        ({"dated": "2025-10-02"}, Rule.BAD_DATE),
        ({"dated": "2020-01-01"}, Rule.STALE),
    ],
)
def test_each_wrong_row_is_refused_by_its_rule(changes: dict[str, Any], rule: Rule) -> None:
    rows = spoilt(**changes)
    found = [finding for finding in audit(rows, DAY) if finding.refused]
    assert rule in {finding.rule for finding in found}
    assert {finding.origin for finding in found} == {"bad"}
    assert all(finding.what and finding.fix and finding.row for finding in found)
    left = next((row for row in drop_refused(rows, found) if row.origin == "bad"), None)
    assert left is None or left.prices() != rows[-1].prices()


def test_the_second_of_two_equal_rows_is_refused() -> None:
    rows = [*family(), replace(family()[0], origin="again")]
    (finding,) = [finding for finding in audit(rows, DAY) if finding.refused]
    assert (finding.rule, finding.origin) == (Rule.DUPLICATE, "again")
    assert "test.csv:0:xlarge" in finding.what
    assert len(drop_refused(rows, [finding])) == len(family())


def test_two_rows_may_hold_different_prices_of_one_machine() -> None:
    rows = [*family(), replace(family()[0].without({"on_demand"}), spot=usd(0.2), origin="spot")]
    assert rules(rows) == []


def test_a_large_host_may_cost_more_than_its_gpu() -> None:
    assert rules(spoilt(instance_type="g4dn.16xlarge", vcpus=64.0, memory_bytes=256 * GiB, on_demand=4.352)) == []


def test_cpus_have_a_usual_price_too() -> None:
    plain = {"gpu": "", "gpus": 0, "vcpus": 2.0, "memory_bytes": 8 * GiB}
    rows = [make_row(**plain, instance_type=f"m{n}.large", on_demand=0.096, origin=str(n)) for n in range(5)]
    assert rules(rows) == []
    assert rules([*rows, make_row(**plain, instance_type="odd", on_demand=0.96, origin="odd")]) == [Rule.CPU_OUTLIER]


def test_a_bad_spot_price_costs_the_spot_price_alone() -> None:
    rows = spoilt(spot=0.6)
    kept = drop_refused(rows, audit(rows, DAY))[-1]
    assert kept.prices() == [("on_demand", usd(0.526))]


def test_a_wrong_price_does_not_make_others_odd() -> None:
    assert rules(spoilt(on_demand=0)) == [Rule.ZERO]


@pytest.mark.parametrize("market", list(Market))
def test_ages_are_counted_by_market(market: Market) -> None:
    column = {"on_demand": "on_demand", "spot": "spot", "reserved": "reserved_1y"}[market.value]
    row = make_row(spot=0.2, reserved_1y=0.3)
    read = date.fromisoformat(row.dated)

    def found(days: int) -> set[Rule]:
        return {one.rule for one in audit([row], read + timedelta(days)) if one.column == column}

    assert found(AGES[market].old) == set()
    assert Rule.OLD in found(AGES[market].old + 1)
    assert Rule.STALE not in found(AGES[market].stale)
    assert Rule.STALE in found(AGES[market].stale + 1)


def test_old_prices_are_told_once_and_offered_all_the_same() -> None:
    rows = family()
    (finding,) = audit(rows, date(2026, 6, 1))
    assert (finding.rule, finding.refused) == (Rule.OLD, False)
    assert finding.row == "12 on-demand prices of aws"
    assert "273 days old" in finding.what
    assert finding.fix == "crucible catalog refresh aws"
    assert drop_refused(rows, [finding]) == tuple(rows)


def test_what_is_shipped_passes() -> None:
    assert shipped().findings == ()
    assert [finding for finding in audit(shipped().rows, DAY) if finding.refused] == []


@given(
    st.lists(
        st.builds(
            make_row,
            region=st.sampled_from(["us-east-1", "eu-west-1", ""]),
            instance_type=st.sampled_from(["a", "b"]),
            gpu=st.sampled_from(["T4", "T5", ""]),
            gpus=st.integers(-1, 70),
            vcpus=st.sampled_from([0.0, 0.5, 4.0, 1e9]),
            on_demand=st.none() | st.integers(-5, 10**7),
            spot=st.none() | st.integers(-5, 10**7),
            reserved_3y=st.none() | st.integers(-5, 10**7),
            dated=st.sampled_from(["2025-09-01", "2001-01-01", "2031-01-01", "x"]),
            origin=st.uuids().map(str),
        ),
        max_size=12,
    )
)
def test_what_passes_once_passes_again(rows: list[Row]) -> None:
    """Whatever is left has sound prices; nothing crashes."""
    kept = drop_refused(rows, audit(rows, DAY))
    for row in kept:
        assert all(price > 0 for _, price in row.prices())
        assert bool(row.gpu) == bool(row.gpus)
    assert not {Rule.ZERO, Rule.NEGATIVE, Rule.DUPLICATE, Rule.STALE, Rule.BAD_DATE, Rule.UNKNOWN_GPU} & set(
        rules(list(kept))
    )
