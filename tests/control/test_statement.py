"""Statements that are written once: the same answers as SQLAlchemy's own way, on either database."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError
from tests.control.world import Rig

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, inserting

ADD = Statement(inserting(t.meta, ["key", "value"]))
VALUE = Statement(select(t.meta.c.value).where(t.meta.c.key == bindparam("name")))
SOME = Statement(select(t.meta).where(t.meta.c.key.in_(bindparam("names", expanding=True))).order_by(t.meta.c.key))
CHANGE = Statement(update(t.meta).where(t.meta.c.key == bindparam("name")).values(value=bindparam("value")))
DROP = Statement(delete(t.meta).where(t.meta.c.key == bindparam("name"), t.meta.c.value != "kept"))


async def test_rows_come_by_name_and_lists_may_have_any_length(rig: Rig) -> None:
    await rig.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": key * 2} for key in "abc"]))
    for names in ("", "a", "ca", "abc", "b"):
        rows = await rig.read(lambda conn, names=names: SOME.all(conn, names=list(names)))  # type: ignore[misc]
        assert [(row["key"], row["value"]) for row in rows] == [(key, key * 2) for key in sorted(names)]


async def test_one_value_one_column_or_nothing(rig: Rig) -> None:
    await rig.sql(lambda conn: ADD.run(conn, key="a", value="1"))
    assert await rig.read(lambda conn: VALUE.value(conn, name="a")) == "1"
    assert await rig.read(lambda conn: VALUE.value(conn, name="b")) is None
    assert await rig.read(lambda conn: SOME.first(conn, names=["b"])) is None
    assert await rig.read(lambda conn: SOME.column(conn, names=["a", "b"])) == ["a"]


async def test_a_change_says_how_many_rows_it_changed(rig: Rig) -> None:
    await rig.sql(lambda conn: ADD.run(conn, key="a", value="kept"))
    assert await rig.sql(lambda conn: CHANGE.run(conn, name="b", value="x")) == 0
    assert await rig.sql(lambda conn: DROP.run(conn, name="a")) == 0, "what never changes is sent too"
    assert await rig.sql(lambda conn: CHANGE.run(conn, name="a", value="x")) == 1
    assert await rig.sql(lambda conn: DROP.run(conn, name="a")) == 1


async def test_a_flag_is_true_or_false(rig: Rig) -> None:
    same = Statement(select((t.meta.c.key == bindparam("name")).label("same")).order_by(t.meta.c.key))
    await rig.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": ""} for key in "ab"]))
    rows = await rig.read(lambda conn: same.all(conn, name="a"))
    assert [row["same"] for row in rows if type(row["same"]) is bool][:2] == [True, False]


async def test_an_error_is_sqlalchemys_own_and_undoes_the_whole_function(rig: Rig) -> None:
    def twice(conn: Connection) -> None:
        ADD.run(conn, key="a", value="1")
        ADD.run(conn, key="a", value="2")

    with pytest.raises(IntegrityError):
        await rig.sql(twice)
    assert await rig.read(lambda conn: VALUE.value(conn, name="a")) is None


async def test_a_parameter_that_is_missing_is_an_error(rig: Rig) -> None:
    with pytest.raises(Exception, match="name"):
        await rig.read(lambda conn: VALUE.value(conn))
