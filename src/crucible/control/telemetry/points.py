"""Metric points, packed into rows of up to 1,024 points per series and drawn at three levels.

A row keeps its points, the two extremes of each stretch of 32 of them, and its own two extremes. A short
series is drawn from its points, a longer one from its stretches, a very long one from its rows; each way the
lowest and the highest point are kept. Points stay in the order in which they came, whatever their times say.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import CTE, Column, Connection, Select, bindparam, func, insert, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement

BLOCK = 1024
STRETCH = 32
RAW_SHARE = 8
"""Up to this many points per point drawn, single points are read."""
LEVEL_SHARE = 32
"""Up to this many extremes of stretches per point drawn, those are read."""

_POINT = struct.Struct("<ddd")


class Point(NamedTuple):
    """`at` is a time by the agent's clock, for display only."""

    step: float
    value: float
    at: float


@dataclass(frozen=True)
class Series:
    count: int
    last: float | None
    low: float | None
    high: float | None
    points: tuple[tuple[float, float | None, float], ...]


@dataclass(frozen=True)
class _PackedBlock:
    """A row: its points, the extremes of each stretch of them and its own, all packed.

    `low` and `high` are of the series up to here, so that its last row knows all that is said of the whole.
    """

    low: float | None = None
    high: float | None = None
    extremes: bytes = b""
    levels: bytes = b""
    data: bytes = b""


# Built once: for single points, building a statement takes longer than running it.
_c = t.metric_blocks.c
_OF_RANK = (_c.attempt == bindparam("of_attempt"), _c.rank == bindparam("of_rank"))
_OF_SERIES = (*_OF_RANK, _c.series == bindparam("of_series"))


def _names() -> CTE:
    """Return the names of a rank's series: one index step for each name, however many rows it has."""
    first = select(func.min(_c.series).label("name")).where(*_OF_RANK).cte("names", recursive=True)
    following = select(func.min(_c.series)).where(*_OF_RANK, _c.series > first.c.name).scalar_subquery()
    return first.union_all(select(following).where(first.c.name.is_not(None)))


def _last_rows() -> Select[Any]:
    names, others = _names(), t.metric_blocks.alias()
    same = (others.c.attempt == _c.attempt, others.c.rank == _c.rank, others.c.series == names.c.name)
    newest = select(func.max(others.c.n)).where(*same).correlate(t.metric_blocks, names).scalar_subquery()
    rows = select(_c.series, _c.n, _c.points, _c.low, _c.high, _c.last)
    return rows.join(names, _c.series == names.c.name).where(*_OF_RANK, _c.n == newest).order_by(_c.series)


def _part_statement(column: Column[Any]) -> Statement:
    """Return the statement for one packed column of a series, from row `first` on."""
    return Statement(select(column).where(*_OF_SERIES, _c.n >= bindparam("first")).order_by(_c.n))


_NAMES = Statement(select(_names().c.name))
_LAST = Statement(_last_rows())
_DATA, _LEVELS, _EXTREMES = _part_statement(_c.data), _part_statement(_c.levels), _part_statement(_c.extremes)
_TAIL = select(t.metric_blocks).where(*_OF_SERIES).order_by(_c.n.desc()).limit(1)
_REPLACE = update(t.metric_blocks).where(*_OF_SERIES, _c.n == bindparam("of_n"))
_ADD = insert(t.metric_blocks)


def append_points(conn: Connection, attempt: str, rank: int, series: str, points: Sequence[Point]) -> None:
    """Append points to a series. Only its last row is written again."""
    key = {"of_attempt": attempt, "of_rank": rank, "of_series": series}
    tail = conn.execute(_TAIL, key).first()
    n, room, block = -1, 0, _PackedBlock()
    if tail:
        n, room = tail.n, BLOCK - tail.points
        block = _PackedBlock(tail.low, tail.high, tail.extremes, tail.levels, tail.data)
    if room and points:
        block = _grow(block, points[:room])
        conn.execute(_REPLACE, {**key, "of_n": n, **_row(block)})
    for start in range(room, len(points), BLOCK):
        n += 1
        block = _grow(_PackedBlock(block.low, block.high), points[start : start + BLOCK])
        conn.execute(_ADD, {"attempt": attempt, "rank": rank, "series": series, "n": n, **_row(block)})


def read_series(conn: Connection, attempt: str, names: Sequence[str], most: int) -> dict[str, Series]:
    """Return series of an attempt's first rank, by name (default: all).

    Each with at most about `most` points that keep its extremes. A negative `most` returns the last `-most` points,
    unthinned.
    """
    rows = [row for row in _last_rows_of(conn, attempt) if not names or row["series"] in names]
    return {row["series"]: _read_one(conn, attempt, row, most) for row in rows}


def series_names(conn: Connection, attempt: str, rank: int) -> set[str]:
    """Return the names of the series that a rank has reported."""
    return {name for name in _NAMES.column(conn, of_attempt=attempt, of_rank=rank) if name is not None}


def latest_values(conn: Connection, attempt: str) -> dict[str, float | None]:
    """Return the last value of every series."""
    return {row["series"]: row["last"] for row in _last_rows_of(conn, attempt)}


def summarize(conn: Connection, attempt: str) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Return the last, lowest and highest value of every series, without reading points."""
    return {row["series"]: (row["last"], row["low"], row["high"]) for row in _last_rows_of(conn, attempt)}


def pack(points: Iterable[Point]) -> bytes:
    return b"".join(_POINT.pack(*point) for point in points)


def unpack(data: bytes) -> list[Point]:
    return list(map(Point._make, _POINT.iter_unpack(data)))


def thin(data: bytes, most: int, least: int = 1) -> list[Point]:
    """Return at most about `most` of the packed points: the lowest and highest of each stretch, in order.

    A stretch has at least `least` points.
    """
    count = len(data) // _POINT.size
    size = least if count <= most else max(least, math.ceil(count / max(most // 2, 1)))
    if size == 1:
        return unpack(data)
    kept = (i for pair in _extremes(data, size) for i in dict.fromkeys(pair))
    return [Point._make(_POINT.unpack_from(data, i * _POINT.size)) for i in kept]


def _last_rows_of(conn: Connection, attempt: str) -> Sequence[Row]:
    """Return the last row of each series of the first rank, without its packed columns."""
    return _LAST.all(conn, of_attempt=attempt, of_rank=0)


def _read_one(conn: Connection, attempt: str, last: Row, most: int) -> Series:
    count = last["n"] * BLOCK + last["points"]
    points = _choose_points(conn, {"of_attempt": attempt, "of_rank": 0, "of_series": last["series"]}, count, most)
    return Series(count, last["last"], last["low"], last["high"], _to_json_points(points))


def _choose_points(conn: Connection, key: Mapping[str, object], count: int, most: int) -> list[Point]:
    """Return the points to show, from the coarsest level that is fine enough."""
    if most < 0:
        first = max(count + most, 0)
        return unpack(_read_packed(conn, key, _DATA, first // BLOCK)[first % BLOCK * _POINT.size :])
    most = max(most, 2)
    if count <= RAW_SHARE * most:
        return thin(_read_packed(conn, key, _DATA), most)
    fine = math.ceil(count / STRETCH) * 2 <= LEVEL_SHARE * most
    return thin(_read_packed(conn, key, _LEVELS if fine else _EXTREMES), most, least=2)


def _read_packed(conn: Connection, key: Mapping[str, object], parts: Statement, first: int = 0) -> bytes:
    """Return one packed column of a series, from row `first` on."""
    return b"".join(parts.column(conn, first=first, **key))


def _to_json_points(points: Iterable[Point]) -> tuple[tuple[float, float | None, float], ...]:
    return tuple((step, value if math.isfinite(value) else None, at) for step, value, at in points)


def _grow(block: _PackedBlock, points: Sequence[Point]) -> _PackedBlock:
    """Return the block with more points. Only the stretches that change are computed again."""
    more = pack(points)
    data = block.data + more
    whole = len(block.data) // (STRETCH * _POINT.size)
    levels = block.levels[: whole * 2 * _POINT.size] + _pairs(data[whole * STRETCH * _POINT.size :], STRETCH)
    extremes = _pairs(block.extremes + more, BLOCK + 2)
    known = [v for v in (block.low, block.high) if v is not None]
    real = [p.value for p in unpack(extremes) if math.isfinite(p.value)] + known
    return _PackedBlock(min(real, default=None), max(real, default=None), extremes, levels, data)


def _row(block: _PackedBlock) -> dict[str, object]:
    _, last, _ = _POINT.unpack(block.data[-_POINT.size :])
    return {
        "points": len(block.data) // _POINT.size,
        "low": block.low,
        "high": block.high,
        "last": last if math.isfinite(last) else None,
        "extremes": block.extremes,
        "levels": block.levels,
        "data": block.data,
    }


def _pairs(data: bytes, size: int) -> bytes:
    """Return the two extremes of each stretch, packed; the same point twice if there is only one."""
    offsets = (i * _POINT.size for pair in _extremes(data, size) for i in pair)
    return b"".join(data[start : start + _POINT.size] for start in offsets)


def _extremes(data: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield, for each stretch of `size` packed points, the indexes of its lowest and highest, in order."""
    values = struct.unpack(f"<{len(data) // 8}d", data)[1::3]
    for start in range(0, len(values), size):
        stretch = values[start : start + size]
        low, high = _lowest_and_highest(stretch)
        yield start + min(low, high), start + max(low, high)


def _lowest_and_highest(values: tuple[float, ...]) -> tuple[int, int]:
    """Return the indexes of the lowest and highest value. NaN and infinities are skipped if any value is finite."""
    real: Sequence[float] = values
    if not math.isfinite(sum(values)):
        real = [value for value in values if math.isfinite(value)]
    return (values.index(min(real)), values.index(max(real))) if real else (0, 0)
