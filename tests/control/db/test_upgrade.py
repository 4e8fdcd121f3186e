"""Databases of every older revision, with rows in them, become what this version's schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)

from crucible.control.db import postgres_schema, schema
from crucible.control.db.migrate import Steps, bring_up_to_date, run_migrations
from crucible.control.db.migrations import REVISIONS, tables_0001

FIRST = Steps(REVISIONS[:1])
ZEROS = {BigInteger: 7, Integer: 7, Float: 1.5, Boolean: True, LargeBinary: b"bytes"}


@contextmanager
def sqlite(path: Path) -> Iterator[Connection]:
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@contextmanager
def postgres(url: str) -> Iterator[Connection]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def some(column: Column[object]) -> object:
    """A value for a column, the same wherever another refers to it."""
    for kind, value in ZEROS.items():
        if isinstance(column.type, kind):
            return value
    return "1"


def fill(connection: Connection) -> None:
    """One row in every table of the first revision, with every column set."""
    run_migrations(connection, FIRST)
    for table in tables_0001.metadata.sorted_tables:
        connection.execute(insert(table).values({column.name: some(column) for column in table.columns}))


def check(connection: Connection) -> None:
    assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == REVISIONS[-1]
    for table in schema.metadata.sorted_tables:
        assert columns_of(connection, table.name) == declared(connection, table), table.name
    for table in tables_0001.metadata.sorted_tables:
        kept = connection.execute(select(*(schema.metadata.tables[table.name].c[c.name] for c in table.columns))).one()
        assert tuple(kept) == tuple(some(column) for column in table.columns), table.name


def columns_of(connection: Connection, table: str) -> dict[str, tuple[object, ...]]:
    found = inspect(connection).get_columns(table)
    return {c["name"]: (str(c["type"].compile(connection.dialect)), c["nullable"]) for c in found}


def declared(connection: Connection, table: Table) -> dict[str, tuple[object, ...]]:
    """What a database says of a column that is made as the schema declares it, whatever its own words for it."""
    probe = Table("probe", MetaData())
    for column in table.columns:
        probe.append_column(Column(column.name, column.type, primary_key=column.primary_key, nullable=column.nullable))
    probe.create(connection)
    try:
        return columns_of(connection, "probe")
    finally:
        probe.drop(connection)


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "crucible.db"
    with sqlite(path) as connection:
        fill(connection)
    bring_up_to_date(path)
    with sqlite(path) as connection:
        check(connection)


def test_postgres(postgres_url: str) -> None:
    with postgres(postgres_url) as connection:
        fill(connection)
    postgres_schema.bring_up_to_date(postgres_url)
    with postgres(postgres_url) as connection:
        check(connection)


def test_jobs_that_were_there_are_found_like_new_ones(tmp_path: Path) -> None:
    """Their names, kinds, words and tags are listed; of two tags with one key the last counts."""
    path = tmp_path / "crucible.db"
    spec = {
        "command": ["{python}", "Train.py"],
        "name": "Old One",
        "kind": "benchmark",
        "tags": ["a", "lr=1", "lr=2", "=x"],
        "source": {"path": "/home/Me"},
    }
    with sqlite(path) as connection:
        fill(connection)
        connection.execute(update(tables_0001.metadata.tables["jobs"]).values(spec=json.dumps(spec)))
    bring_up_to_date(path)
    with sqlite(path) as connection:
        listing = connection.execute(select(schema.listings)).mappings().one()
        tags = connection.execute(select(schema.job_tags).order_by(schema.job_tags.c.key)).all()
    assert dict(listing) == {
        "job": "1",
        "kind": "benchmark",
        "name": "Old One",
        "folded": "old one",
        "words": "{python} train.py /home/me ",
    }
    assert [(tag.job, tag.key, tag.value) for tag in tags] == [("1", "a", ""), ("1", "lr", "2")]


def test_the_first_revision_is_frozen() -> None:
    """What it makes is what databases out there hold: nobody may change it."""
    names = {table.name: len(table.columns) for table in tables_0001.metadata.sorted_tables}
    assert (len(names), sum(names.values())) == (14, 139)
    assert "checkpoints" not in names
