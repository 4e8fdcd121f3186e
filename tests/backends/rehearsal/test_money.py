"""Test prices and the bill against arithmetic that is not the cloud's."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.backends.rehearsal.place import ZONE, Cloud

from crucible.backends.rehearsal.cloud import billing
from crucible.backends.rehearsal.cloud.catalogue import TYPES, Item, Market, all_items, list_rate
from crucible.backends.rehearsal.cloud.market import MarketState
from crucible.backends.rehearsal.cloud.records import Segment
from crucible.backends.rehearsal.cloud.store import Store
from crucible.core.compute import pricing
from crucible.core.compute.offers import Billing

KIND = TYPES["sim.c2"]


def by_hand(segments: list[tuple[int, int]], minimum: int = 60) -> int:
    """Compute the price in micro-dollars with exact fractions."""
    dollars = sum((Fraction(rate, 10**6) * Fraction(seconds, 3600) for seconds, rate in segments), Fraction(0))
    missing = max(minimum - sum(seconds for seconds, _ in segments), 0)
    dollars += Fraction(segments[-1][1], 10**6) * Fraction(missing, 3600)
    return math.ceil(dollars * 10**6)


def hold(cloud: Cloud, rate: int | None) -> None:
    cloud.call("POST", "/admin/price", {"zone": ZONE, "type": "sim.c2", "rate": rate})


class TestTheBill:
    def test_it_is_metered_by_the_second_over_every_price(self, cloud: Cloud) -> None:
        rates = [123_457, 98_761, 1_000_003]
        hold(cloud, rates[0])
        id = cloud.running(market="spot")["id"]
        for rate, seconds in zip([*rates[1:], rates[2]], (100, 77, 1234), strict=True):
            cloud.advance(seconds)
            hold(cloud, rate)
        cloud.terminate(id)
        line = cloud.bill()[id]
        assert [segment["rate"] for segment in line["segments"]] == rates
        lengths = [segment["until"] - segment["since"] for segment in line["segments"]]
        assert all(0 <= length - told <= 5 for length, told in zip(lengths, (100, 77, 1234), strict=True))
        ends = [segment["until"] for segment in line["segments"]]
        assert [segment["since"] for segment in line["segments"][1:]] == ends[:-1]
        assert line["micro_dollars"] == by_hand(list(zip(lengths, rates, strict=True)))
        assert line["seconds_billed"] == sum(lengths)

    def test_a_minute_is_the_least_and_pending_costs_nothing(self, cloud: Cloud) -> None:
        short = cloud.running(type="sim.a100.1")["id"]
        cloud.terminate(short)
        cloud.faults(boot_seconds=3600)
        never = cloud.create(type="sim.a100.1")["id"]
        cloud.terminate(never)
        bill = cloud.bill()
        rate = list_rate(Item(ZONE, "sim.a100.1", Market.ON_DEMAND))
        assert (bill[short]["seconds_billed"], bill[short]["micro_dollars"]) == (60, math.ceil(rate / 60))
        assert (bill[never]["segments"], bill[never]["micro_dollars"]) == ([], 0)
        assert cloud.call("GET", "/v1/bill")["total_micro_dollars"] == bill[short]["micro_dollars"]

    def test_what_runs_is_billed_up_to_now_and_what_ended_no_more(self, cloud: Cloud) -> None:
        ended, runs = cloud.running()["id"], cloud.running()["id"]
        cloud.terminate(ended)
        before = cloud.bill()
        cloud.advance(7200)
        after = cloud.bill()
        assert after[ended]["micro_dollars"] == before[ended]["micro_dollars"]
        assert after[runs]["micro_dollars"] > before[runs]["micro_dollars"]
        assert after[runs]["segments"][-1]["until"] is None

    @given(
        st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**8)), min_size=1, max_size=6),
        st.integers(0, 2 * 10**9),
    )
    def test_three_ways_of_counting_agree(self, lengths: list[tuple[int, int]], start: int) -> None:
        segments, at = [], start
        for seconds, rate in lengths:
            segments.append(Segment(at, at + seconds, rate))
            at += seconds
        theirs = billing.micro_dollars(segments, KIND, 0)
        ours = [pricing.Segment(s.since, s.until, s.rate) for s in segments]
        assert theirs == by_hand(lengths) == pricing.machine_cost(ours, Billing(1, 60), 0.0)


class TestPrices:
    def test_spot_prices_move_with_time_and_others_stay(self, cloud: Cloud) -> None:
        before = rates(cloud)
        cloud.advance(3600)
        after = rates(cloud)
        spot = [key for key in before if key[2] == "spot"]
        assert sum(before[key] != after[key] for key in spot) > len(spot) / 2
        assert all(before[key] == after[key] for key in before if key[2] != "spot")

    def test_a_move_on_demand_reprices_what_runs(self, cloud: Cloud) -> None:
        spot, steady = cloud.running(market="spot")["id"], cloud.running()["id"]
        cloud.advance(10)
        cloud.call("POST", "/admin/price/move", {"steps": 3})
        assert len(cloud.bill()[spot]["segments"]) == 2
        assert len(cloud.bill()[steady]["segments"]) == 1

    def test_a_held_price_stays_until_it_is_let_go(self, cloud: Cloud) -> None:
        hold(cloud, 77)
        cloud.advance(3600)
        assert rates(cloud)[ZONE, "sim.c2", "spot"] == 77
        hold(cloud, None)
        cloud.advance(3600)
        assert rates(cloud)[ZONE, "sim.c2", "spot"] > 77

    def test_the_walk_is_seeded_and_keeps_its_bounds(self, tmp_path: Path) -> None:
        walks = [self.walk(Store(tmp_path / f"{n}.db"), seed) for n, seed in enumerate((1, 1, 2))]
        assert walks[0] == walks[1] != walks[2]
        for rate_by_item in walks[0]:
            for item, rate in rate_by_item.items():
                on_demand = list_rate(Item(item.zone, item.type, Market.ON_DEMAND))
                assert list_rate(item) // 2 <= rate <= on_demand

    def walk(self, store: Store, seed: int) -> list[dict[Item, int]]:
        trade, seen = MarketState(store, seed), []
        for step in range(100):
            with store.transaction():
                trade.move(step)
            seen.append(trade.rates())
        return seen

    def test_everything_for_sale_has_a_price(self) -> None:
        items = list(all_items())
        assert len(items) == 3 * 2 * 6 * 3
        assert all(list_rate(item) > 0 for item in items)


def rates(cloud: Cloud) -> dict[tuple[str, str, str], int]:
    offers = cloud.call("GET", "/v1/offers")["offers"]
    return {(offer["zone"], offer["type"], offer["market"]): offer["rate"] for offer in offers}
