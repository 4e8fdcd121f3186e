from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.world import Rig

from crucible.control import points
from crucible.control.points import BLOCK, Point, Series

VALUES = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.builds(Point, st.floats(0, 1e9), VALUES, st.floats(0, 4e9)), max_size=60)


async def attempt_of(rig: Rig) -> str:
    return (await rig.attempt(await rig.submit())).id


async def append(rig: Rig, attempt: str, found: list[Point], name: str = "loss", rank: int = 0) -> None:
    await rig.sql(lambda conn: points.append(conn, attempt, rank, name, found))


async def read(rig: Rig, attempt: str, most: int = 10**6) -> Series:
    return (await rig.read(lambda conn: points.read(conn, attempt, [], most)))["loss"]


def line(count: int, start: int = 0) -> list[Point]:
    return [Point(float(i), float(i), 1000.0 + i) for i in range(start, start + count)]


def same(found: Point, expected: Point) -> bool:
    return (found.step, found.at) == (expected.step, expected.at) and (
        found.value == expected.value or (math.isnan(found.value) and math.isnan(expected.value))
    )


@given(POINTS)
def test_packing_loses_nothing(found: list[Point]) -> None:
    back = points.unpack(points.pack(found))
    assert len(back) == len(found)
    assert all(map(same, back, found))


@given(POINTS, st.integers(2, 80))
def test_thinning_keeps_order_bounds_and_extremes(found: list[Point], most: int) -> None:
    kept = points.thin(found, most)
    assert len(kept) <= max(most, 2)
    rest = iter(found)
    assert all(any(point is item for item in rest) for point in kept), "a part of it, in its order"
    real = [p.value for p in found if math.isfinite(p.value)]
    kept_real = [p.value for p in kept if math.isfinite(p.value)]
    if real:
        assert (min(kept_real), max(kept_real)) == (min(real), max(real))


@given(POINTS)
def test_what_is_few_is_not_thinned(found: list[Point]) -> None:
    assert points.thin(found, 60) == found


@pytest.mark.parametrize(
    "sizes", [[1], [BLOCK], [BLOCK, 1], [BLOCK - 1, 2], [1] * 5, [3 * BLOCK + 7], [700, 700, 700]]
)
async def test_appended_is_read_back_in_full_blocks(rig: Rig, sizes: list[int]) -> None:
    attempt = await attempt_of(rig)
    total = 0
    for size in sizes:
        await append(rig, attempt, line(size, total))
        total += size
    found = await read(rig, attempt)
    assert found == Series(
        total, total - 1.0, 0.0, total - 1.0, tuple((p.step, p.value, p.at) for p in line(total))
    )


async def test_series_and_ranks_are_apart(rig: Rig) -> None:
    attempt, other = await attempt_of(rig), await attempt_of(rig)
    await append(rig, attempt, line(3), "loss")
    await append(rig, attempt, line(2), "accuracy")
    await append(rig, attempt, line(9), "loss", rank=1)
    await append(rig, other, line(1), "loss")
    found = await rig.read(lambda conn: points.read(conn, attempt, [], 100))
    assert {name: series.count for name, series in found.items()} == {"accuracy": 2, "loss": 3}
    chosen = await rig.read(lambda conn: points.read(conn, attempt, ["loss", "none"], 100))
    assert list(chosen) == ["loss"]
    assert await rig.read(lambda conn: points.names_of(conn, attempt, 1)) == {"loss"}
    assert await rig.read(lambda conn: points.latest(conn, attempt)) == {"accuracy": 1.0, "loss": 2.0}


async def test_latest_is_of_the_last_block(rig: Rig) -> None:
    attempt = await attempt_of(rig)
    await append(rig, attempt, line(BLOCK + 5))
    assert await rig.read(lambda conn: points.latest(conn, attempt)) == {"loss": BLOCK + 4.0}
    assert await rig.read(lambda conn: points.latest(conn, "att-none")) == {}


async def test_values_that_are_no_numbers_are_shown_as_none(rig: Rig) -> None:
    attempt = await attempt_of(rig)
    values = (1.0, math.nan, math.inf, -math.inf)
    await append(rig, attempt, [Point(i, v, 0) for i, v in enumerate(values)])
    found = await read(rig, attempt)
    assert [p[1] for p in found.points] == [1.0, None, None, None]
    assert (found.last, found.low, found.high, found.count) == (None, 1.0, 1.0, 4)


async def test_a_series_of_nan_alone_has_no_extremes(rig: Rig) -> None:
    attempt = await attempt_of(rig)
    await append(rig, attempt, [Point(i, math.nan, 0) for i in range(3 * BLOCK)])
    for most in (2, 10, 10**6):
        found = await read(rig, attempt, most)
        assert (found.count, found.last, found.low, found.high) == (3 * BLOCK, None, None, None)
        assert all(p[1] is None for p in found.points)


async def test_a_hundred_thousand_points_are_drawn_quickly_with_their_extremes(rig: Rig) -> None:
    attempt = await attempt_of(rig)
    found = line(100_000)
    found[77_777] = Point(77_777.0, -5.0, 0.0)
    await append(rig, attempt, found)
    began = time.perf_counter()
    drawn = await read(rig, attempt, 500)
    assert time.perf_counter() - began < 3
    assert drawn.count == 100_000
    assert len(drawn.points) <= 500
    assert (drawn.low, drawn.high, drawn.last) == (-5.0, 99_999.0, 99_999.0)
    assert (77_777.0, -5.0, 0.0) in drawn.points
    steps = [p[0] for p in drawn.points]
    assert steps == sorted(steps)


async def test_a_long_series_is_drawn_from_the_extremes_of_its_blocks(rig: Rig) -> None:
    attempt = await attempt_of(rig)
    falling = [Point(p.step, -p.value, p.at) for p in line(40 * BLOCK)]
    await append(rig, attempt, falling)
    for most in (0, 1, 2, 20, 79):
        drawn = await read(rig, attempt, most)
        assert 2 <= len(drawn.points) <= max(most, 2)
        values = [p[1] for p in drawn.points if p[1] is not None]
        assert values == sorted(values, reverse=True), "a loss that falls is drawn as one that falls"
        assert (min(values), max(values)) == (drawn.low, drawn.high)
