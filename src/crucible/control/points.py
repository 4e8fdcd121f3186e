"""Metric points, packed: rows of up to 1,024 points per series, each with its extremes.

The extremes of whole blocks draw a long series without unpacking it; unpacking draws a short one exactly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, update

from crucible.control.db import schema as t

BLOCK = 1024
_POINT = struct.Struct("<ddd")


@dataclass(frozen=True)
class Point:
    """`at` is the agent's clock, for people."""

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


def append(conn: Connection, attempt: str, rank: int, series: str, points: Sequence[Point]) -> None:
    """Adds points at the end of a series."""
    where = _series(attempt, rank, series)
    c = t.metric_blocks.c
    tail = conn.execute(select(c.n, c.points, c.data).where(*where).order_by(c.n.desc()).limit(1)).first()
    n, data = (
        (tail.n, bytes(tail.data)) if tail and tail.points < BLOCK else ((tail.n + 1) if tail else 0, b"")
    )
    fresh = not data
    for block in _blocks(data, points):
        values = _block_values(block)
        if fresh:
            key = {"attempt": attempt, "rank": rank, "series": series, "n": n}
            conn.execute(insert(t.metric_blocks).values({**key, **values}))
        else:
            conn.execute(update(t.metric_blocks).where(*where, c.n == n).values(values))
        n, fresh = n + 1, True


def read(conn: Connection, attempt: str, names: Sequence[str], most: int) -> dict[str, Series]:
    """The series of an attempt's first rank, each with at most about `most` points that keep its extremes."""
    found = sorted(names_of(conn, attempt, 0))
    return {name: _read(conn, attempt, name, max(most, 2)) for name in found if not names or name in names}


def names_of(conn: Connection, attempt: str, rank: int) -> set[str]:
    """The names of the series that a rank has reported."""
    c = t.metric_blocks.c
    query = select(c.series).where(c.attempt == attempt, c.rank == rank).distinct()
    return {row.series for row in conn.execute(query).all()}


def latest(conn: Connection, attempt: str) -> dict[str, float | None]:
    """The last value of every series."""
    c = t.metric_blocks.c
    rows = conn.execute(
        select(c.series, c.last).where(c.attempt == attempt, c.rank == 0).order_by(c.series, c.n)
    )
    return {row.series: row.last for row in rows.all()}


def pack(points: Iterable[Point]) -> bytes:
    return b"".join(_POINT.pack(p.step, p.value, p.at) for p in points)


def unpack(data: bytes) -> list[Point]:
    return [Point(*fields) for fields in _POINT.iter_unpack(data)]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most about `most` points: of each stretch the lowest and the highest, in order."""
    if len(points) <= most or most < 2:
        return list(points)
    size = math.ceil(len(points) / (most // 2))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        real = [i for i in stretch if math.isfinite(points[i].value)] or [start]
        extremes = {min(real, key=lambda i: points[i].value), max(real, key=lambda i: points[i].value)}
        kept.extend(points[i] for i in sorted(extremes))
    return kept


def _read(conn: Connection, attempt: str, name: str, most: int) -> Series:
    c = t.metric_blocks.c
    columns = (c.points, c.low, c.high, c.last, c.first_step, c.last_step, c.last_at)
    where = _series(attempt, 0, name)
    rows = conn.execute(select(*columns).where(*where).order_by(c.n)).all()
    total = sum(row.points for row in rows)
    if len(rows) * 2 > most:
        points = thin([p for row in rows for p in _extremes(row)], most)
    else:
        packed = conn.execute(select(c.data).where(*where).order_by(c.n)).scalars()
        points = thin([p for data in packed for p in unpack(bytes(data))], most)
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    return Series(total, rows[-1].last, min(lows, default=None), max(highs, default=None), _shown(points))


def _extremes(row: Any) -> Iterator[Point]:
    """A block's lowest and highest. Where they lie in it is not known; the one nearer its end comes last."""
    falls = row.last is not None and row.last - row.low < row.high - row.last
    values = (row.high, row.low) if falls else (row.low, row.high)
    for step, value in zip((row.first_step, row.last_step), values, strict=True):
        if step is not None and value is not None:
            yield Point(step, value, row.last_at)


def _shown(points: Iterable[Point]) -> tuple[tuple[float, float | None, float], ...]:
    return tuple((p.step, p.value if math.isfinite(p.value) else None, p.at) for p in points)


def _series(attempt: str, rank: int, series: str) -> tuple[ColumnElement[bool], ...]:
    c = t.metric_blocks.c
    return (c.attempt == attempt, c.rank == rank, c.series == series)


def _blocks(data: bytes, points: Sequence[Point]) -> Iterator[bytes]:
    joined = data + pack(points)
    size = BLOCK * _POINT.size
    for start in range(0, len(joined), size):
        yield joined[start : start + size]


def _block_values(data: bytes) -> dict[str, object]:
    points = unpack(data)
    real = [p.value for p in points if math.isfinite(p.value)]
    last = points[-1]
    return {
        "points": len(points),
        "first_step": points[0].step,
        "last_step": last.step,
        "last_at": last.at,
        "low": min(real, default=None),
        "high": max(real, default=None),
        "last": last.value if math.isfinite(last.value) else None,
        "data": data,
    }
