from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crucible.control.db import InlineDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Notes


def finish(coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine that never suspends, without an event loop."""
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


def test_it_never_suspends(table: Notes) -> None:
    db = InlineDb()
    finish(db.write(table.create))
    assert finish(db.write(table.add(7))) == 7
    assert finish(db.read(table.ids)) == [7]
    finish(db.close())


def test_on_a_file_another_carries_on_where_a_crash_left_it(tmp_path: Path, table: Notes) -> None:
    crashed = InlineDb(tmp_path / "world.db")
    finish(crashed.write(table.create))
    finish(crashed.write(table.add(1)))
    assert finish(InlineDb(tmp_path / "world.db").read(table.ids)) == [1]


def test_two_in_memory_are_two_worlds(table: Notes) -> None:
    one, other = InlineDb(), InlineDb()
    for db in (one, other):
        finish(db.write(table.create))
    finish(one.write(table.add(1)))
    assert finish(other.read(table.ids)) == []
