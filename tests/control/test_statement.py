"""Statements that are written once: the same answers as SQLAlchemy's own way, on either database."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Connection,
    DateTime,
    Enum,
    Float,
    LargeBinary,
    Numeric,
    String,
    Text,
    bindparam,
    column,
    create_engine,
    delete,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine
from tests.control.harness import ControlHarness

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row

ADD = Statement(insert_row(t.meta, ["key", "value"]))
VALUE = Statement(select(t.meta.c.value).where(t.meta.c.key == bindparam("name")))
SOME = Statement(select(t.meta).where(t.meta.c.key.in_(bindparam("names", expanding=True))).order_by(t.meta.c.key))
CHANGE = Statement(update(t.meta).where(t.meta.c.key == bindparam("name")).values(value=bindparam("value")))
DROP = Statement(delete(t.meta).where(t.meta.c.key == bindparam("name"), t.meta.c.value != "kept"))


async def test_rows_come_by_name_and_lists_may_have_any_length(harness: ControlHarness) -> None:
    await harness.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": key * 2} for key in "abc"]))
    for names in ("", "a", "ca", "abc", "b"):
        rows = await harness.read(lambda conn, names=names: SOME.all(conn, names=list(names)))  # type: ignore[misc]
        assert [(row["key"], row["value"]) for row in rows] == [(key, key * 2) for key in sorted(names)]


async def test_one_value_one_column_or_nothing(harness: ControlHarness) -> None:
    await harness.sql(lambda conn: ADD.run(conn, key="a", value="1"))
    assert await harness.read(lambda conn: VALUE.value(conn, name="a")) == "1"
    assert await harness.read(lambda conn: VALUE.value(conn, name="b")) is None
    assert await harness.read(lambda conn: SOME.first(conn, names=["b"])) is None
    assert await harness.read(lambda conn: SOME.column(conn, names=["a", "b"])) == ["a"]


async def test_a_change_says_how_many_rows_it_changed(harness: ControlHarness) -> None:
    await harness.sql(lambda conn: ADD.run(conn, key="a", value="kept"))
    assert await harness.sql(lambda conn: CHANGE.run(conn, name="b", value="x")) == 0
    assert await harness.sql(lambda conn: DROP.run(conn, name="a")) == 0, "what never changes is sent too"
    assert await harness.sql(lambda conn: CHANGE.run(conn, name="a", value="x")) == 1
    assert await harness.sql(lambda conn: DROP.run(conn, name="a")) == 1


async def test_a_flag_is_true_or_false(harness: ControlHarness) -> None:
    same = Statement(select((t.meta.c.key == bindparam("name")).label("same")).order_by(t.meta.c.key))
    await harness.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": ""} for key in "ab"]))
    rows = await harness.read(lambda conn: same.all(conn, name="a"))
    assert [row["same"] for row in rows if type(row["same"]) is bool][:2] == [True, False]


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("given", "kind", "made"),
    [
        (b"\x00\xff%s", LargeBinary(), b"\x00\xff%s"),
        (memoryview(b"abc"), LargeBinary(), b"abc"),
        (True, Boolean(), True),
        (None, Boolean(), None),
        (2**60, BigInteger(), 2**60),
        (0.1, Float(), 0.1),
        (Colour.RED, String(), "red"),
        ("50% of ü, %s and :name", Text(), "50% of ü, %s and :name"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_values_are_what_sqlalchemy_would_make_of_them(
    harness: ControlHarness, given: object, kind: TypeEngine[Any], made: object
) -> None:
    clause = select(bindparam("given", type_=kind).label("given"))
    row = await harness.read(lambda conn: Statement(clause).first(conn, given=given))
    theirs = await harness.read(lambda conn: conn.execute(clause, {"given": given}).scalar())
    assert row is not None
    assert row["given"] == theirs == made
    assert type(row["given"]) is type(theirs) is type(made)


@pytest.mark.parametrize("kind", [DateTime(), JSON(), Enum("a", "b"), Numeric()], ids=repr)
def test_types_that_sqlalchemy_makes_itself_are_refused(kind: TypeEngine[Any]) -> None:
    with pytest.raises(TypeError, match="SQLAlchemy"):
        Statement(select(bindparam("given", type_=kind).label("given")))
    with pytest.raises(TypeError, match="SQLAlchemy"):
        Statement(select(column("made", kind)).select_from(t.meta))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
async def test_rows_of_parameters_are_sent_each(harness: ControlHarness, count: int) -> None:
    keys = "abcdefg"[:count]
    await harness.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": key} for key in keys]))
    assert await harness.read(lambda conn: SOME.column(conn, names=list("abcdefg"))) == list(keys)


async def test_one_bad_row_of_many_is_sqlalchemys_error_too(harness: ControlHarness) -> None:
    with pytest.raises(IntegrityError):
        await harness.sql(lambda conn: ADD.run_each(conn, [{"key": key, "value": ""} for key in "aba"]))
    assert await harness.read(lambda conn: SOME.column(conn, names=["a", "b"])) == []


async def test_an_error_is_sqlalchemys_own_and_undoes_the_whole_function(harness: ControlHarness) -> None:
    def twice(conn: Connection) -> None:
        ADD.run(conn, key="a", value="1")
        ADD.run(conn, key="a", value="2")

    with pytest.raises(IntegrityError):
        await harness.sql(twice)
    assert await harness.read(lambda conn: VALUE.value(conn, name="a")) is None


async def test_a_parameter_that_is_missing_is_an_error(harness: ControlHarness) -> None:
    with pytest.raises(Exception, match="name"):
        await harness.read(lambda conn: VALUE.value(conn))


def test_an_engine_that_names_its_parameters_is_refused() -> None:
    """What is compiled for it would be kept, and sent to connections that know no names."""
    fresh = Statement(select(t.meta.c.value).where(t.meta.c.key == bindparam("name")))
    with create_engine("sqlite://", paramstyle="named").connect() as conn, pytest.raises(TypeError, match="positional"):
        fresh.value(conn, name="a")
