from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from tests.control.fakes import FakeClock

from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.runtime.durations import DurationHistogram, TimedDb


def test_durations_are_counted_up_to_each_bound() -> None:
    found = DurationHistogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.5, 3.0):
        found.add(seconds)
    assert found.counts == [2, 3, 4]
    assert found.total == pytest.approx(3.6)


@given(st.lists(st.floats(0, 1e6)))
def test_the_last_count_is_of_all_and_none_falls(seconds: list[float]) -> None:
    found = DurationHistogram()
    for one in seconds:
        found.add(one)
    assert found.counts == sorted(found.counts)
    assert found.counts[-1] == len(seconds)


async def test_writes_are_timed_and_reads_are_not_also_when_they_fail() -> None:
    clock = FakeClock()
    db = TimedDb(InlineDb(), clock)

    def slow(conn: Connection) -> int:
        clock.move(0.3)
        return int(conn.execute(text("SELECT 7")).scalar_one())

    def broken(conn: Connection) -> int:
        raise LookupError

    assert await db.write(slow) == 7
    assert await db.read(slow) == 7
    with pytest.raises(LookupError):
        await db.write(broken)
    assert db.writes.counts[-1] == 2
    assert db.writes.total == pytest.approx(0.3)
    await db.close()
