from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection
from tests.control.harness import ControlHarness

from crucible.control.db import schema as t
from crucible.control.telemetry import points
from crucible.control.telemetry.points import BLOCK, Point, Series

VALUES = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.builds(Point, st.floats(0, 1e9), VALUES, st.floats(0, 4e9)), max_size=60)


async def attempt_of(harness: ControlHarness) -> str:
    return (await harness.attempt(await harness.submit())).id


async def append(harness: ControlHarness, attempt: str, found: list[Point], name: str = "loss", rank: int = 0) -> None:
    await harness.sql(lambda conn: points.append_points(conn, attempt, rank, name, found))


async def read(harness: ControlHarness, attempt: str, most: int = 10**6) -> Series:
    return (await harness.read(lambda conn: points.read_series(conn, attempt, [], most)))["loss"]


def line(count: int, start: int = 0) -> list[Point]:
    return [Point(float(i), float(i), 1000.0 + i) for i in range(start, start + count)]


def same(found: Point, expected: Point) -> bool:
    return (found.step, found.at) == (expected.step, expected.at) and (
        found.value == expected.value or (math.isnan(found.value) and math.isnan(expected.value))
    )


def is_part(kept: Iterable[Point], found: Iterable[Point]) -> bool:
    """Whether `found` has all of these, in this order."""
    rest = iter(found)
    return all(any(same(point, item) for item in rest) for point in kept)


def extremes(found: Iterable[Point]) -> tuple[float | None, float | None]:
    real = [p.value for p in found if math.isfinite(p.value)]
    return min(real, default=None), max(real, default=None)


def shown(found: Iterable[Point]) -> tuple[tuple[float, float | None, float], ...]:
    return tuple((p.step, p.value if math.isfinite(p.value) else None, p.at) for p in found)


@given(POINTS)
def test_packing_loses_nothing(found: list[Point]) -> None:
    back = points.unpack(points.pack(found))
    assert len(back) == len(found)
    assert all(map(same, back, found))


@given(POINTS, st.integers(2, 80))
def test_thinning_keeps_order_bounds_and_extremes(found: list[Point], most: int) -> None:
    kept = points.thin(points.pack(found), most)
    assert len(kept) <= max(most, 2)
    assert is_part(kept, found)
    assert extremes(kept) == extremes(found)


@given(POINTS)
def test_what_is_few_is_not_thinned(found: list[Point]) -> None:
    kept = points.thin(points.pack(found), 60)
    assert len(kept) == len(found)
    assert is_part(kept, found)


@pytest.mark.parametrize("sizes", [[1], [BLOCK], [BLOCK, 1], [BLOCK - 1, 2], [1] * 5, [3 * BLOCK + 7], [700, 700, 700]])
async def test_appended_is_read_back_in_full_blocks(harness: ControlHarness, sizes: list[int]) -> None:
    attempt = await attempt_of(harness)
    total = 0
    for size in sizes:
        await append(harness, attempt, line(size, total))
        total += size
    found = await read(harness, attempt)
    assert found == Series(total, total - 1.0, 0.0, total - 1.0, shown(line(total)))


async def test_series_and_ranks_are_apart(harness: ControlHarness) -> None:
    attempt, other = await attempt_of(harness), await attempt_of(harness)
    await append(harness, attempt, line(3), "loss")
    await append(harness, attempt, line(2), "accuracy")
    await append(harness, attempt, line(9), "loss", rank=1)
    await append(harness, other, line(1), "loss")
    found = await harness.read(lambda conn: points.read_series(conn, attempt, [], 100))
    assert {name: series.count for name, series in found.items()} == {"accuracy": 2, "loss": 3}
    chosen = await harness.read(lambda conn: points.read_series(conn, attempt, ["loss", "none"], 100))
    assert list(chosen) == ["loss"]
    assert await harness.read(lambda conn: points.series_names(conn, attempt, 1)) == {"loss"}
    assert await harness.read(lambda conn: points.latest_values(conn, attempt)) == {"accuracy": 1.0, "loss": 2.0}


async def test_latest_is_of_the_last_block(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    await append(harness, attempt, line(BLOCK + 5))
    assert await harness.read(lambda conn: points.latest_values(conn, attempt)) == {"loss": BLOCK + 4.0}
    assert await harness.read(lambda conn: points.latest_values(conn, "att-none")) == {}


async def test_values_that_are_no_numbers_are_shown_as_none(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    values = (1.0, math.nan, math.inf, -math.inf)
    await append(harness, attempt, [Point(i, v, 0) for i, v in enumerate(values)])
    found = await read(harness, attempt)
    assert [p[1] for p in found.points] == [1.0, None, None, None]
    assert (found.last, found.low, found.high, found.count) == (None, 1.0, 1.0, 4)


async def test_a_series_of_nan_alone_has_no_extremes(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    await append(harness, attempt, [Point(i, math.nan, 0) for i in range(3 * BLOCK)])
    for most in (2, 10, 10**6):
        found = await read(harness, attempt, most)
        assert (found.count, found.last, found.low, found.high) == (3 * BLOCK, None, None, None)
        assert all(p[1] is None for p in found.points)


def noise(count: int) -> list[Point]:
    """Points whose extremes lie anywhere, with steps and times that tell nothing of their order."""
    dice = random.Random(count)
    return [Point(float(i % 777), dice.gauss(0, 1), float(-i)) for i in range(count)]


async def test_each_level_keeps_the_extremes_and_the_order(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    found = noise(40 * BLOCK + 17)
    found[5_555] = found[5_555]._replace(value=-99.0)
    found[33_333] = found[33_333]._replace(value=99.0)
    for start in range(0, len(found), 900):
        await append(harness, attempt, found[start : start + 900])
    for most in (0, 2, 3, 20, 78, 100, 500, 2_000, 6_000, 50_000):
        drawn = await read(harness, attempt, most)
        assert (drawn.count, drawn.low, drawn.high) == (len(found), -99.0, 99.0)
        assert len(drawn.points) <= max(most, 2)
        assert len(drawn.points) >= min(most, len(found)) * 0.4, "a chart is filled"
        kept = [Point(step, math.nan if value is None else value, at) for step, value, at in drawn.points]
        assert is_part(kept, found), "points that there are, in their order"
        assert extremes(kept) == (-99.0, 99.0)


async def test_points_one_by_one_make_the_same_rows_as_all_at_once(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    found = noise(BLOCK + 70)
    found[3], found[BLOCK + 1] = found[3]._replace(value=math.nan), found[BLOCK + 1]._replace(value=math.inf)
    await append(harness, attempt, found, "whole")

    def one_by_one(conn: Connection) -> None:
        for point in found:
            points.append_points(conn, attempt, 0, "slow", [point])

    await harness.sql(one_by_one)
    rows = await harness.rows(t.metric_blocks)
    slow = [{**row, "series": "whole"} for row in rows if row["series"] == "slow"]
    assert slow == [row for row in rows if row["series"] == "whole"]


async def test_nothing_appended_changes_nothing(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    await append(harness, attempt, [])
    assert await harness.rows(t.metric_blocks) == []
    await append(harness, attempt, line(3))
    await append(harness, attempt, [])
    assert (await read(harness, attempt)).points == shown(line(3))


@pytest.mark.parametrize("most", [-1, -31, -BLOCK, -BLOCK - 1, -2 * BLOCK - 5, -(10**6)])
async def test_the_last_points_are_read_whole(harness: ControlHarness, most: int) -> None:
    attempt = await attempt_of(harness)
    found = noise(2 * BLOCK + 5)
    await append(harness, attempt, found)
    last = await read(harness, attempt, most)
    assert last.points == shown(found[most:])
    assert (last.count, (last.low, last.high), last.last) == (len(found), extremes(found), found[-1].value)


async def test_gaps_among_the_values_hide_no_extremes(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    found = [p if i % 7 else p._replace(value=math.nan) for i, p in enumerate(noise(20 * BLOCK))]
    found[100:200] = [Point(0.0, -math.inf, 0.0)] * 100
    await append(harness, attempt, found)
    for most in (10, 100, 1_000):
        drawn = await read(harness, attempt, most)
        values = [p[1] for p in drawn.points if p[1] is not None]
        assert (min(values), max(values)) == extremes(found) == (drawn.low, drawn.high)


async def test_values_too_large_to_add_up_have_extremes(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    await append(harness, attempt, [Point(i, 1.7e308 if i != 5 else -1.7e308, 0) for i in range(2 * BLOCK)])
    drawn = await read(harness, attempt, 4)
    assert {p[1] for p in drawn.points} == {1.7e308, -1.7e308}
    assert (drawn.low, drawn.high) == (-1.7e308, 1.7e308)


@pytest.mark.quiet
async def test_a_million_points_are_drawn_at_once(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    found = line(1_000_000)
    found[777_777] = Point(777_777.0, -5.0, 0.0)
    await append(harness, attempt, found)
    for most in (500, 2_000, 10_000, -500):
        spent = []
        for _ in range(3):  # the collector may look through a million points during one of them
            began = time.thread_time()
            drawn = await read(harness, attempt, most)
            spent.append(time.thread_time() - began)
        assert min(spent) < 0.5, "a tenth of this where nothing else runs"
        assert (drawn.count, drawn.low, drawn.last) == (1_000_000, -5.0, 999_999.0)
        assert len(drawn.points) <= abs(most)
        assert most < 0 or (777_777.0, -5.0, 0.0) in drawn.points


async def test_a_loss_that_falls_is_drawn_as_one_that_falls(harness: ControlHarness) -> None:
    attempt = await attempt_of(harness)
    await append(harness, attempt, [Point(p.step, -p.value, p.at) for p in line(40 * BLOCK)])
    for most in (0, 1, 2, 20, 79, 500):
        drawn = await read(harness, attempt, most)
        values = [p[1] for p in drawn.points if p[1] is not None]
        assert values == sorted(values, reverse=True)
        assert (min(values), max(values)) == (drawn.low, drawn.high)
        assert all(value == -step for step, value, _at in drawn.points), "each at its own step"
