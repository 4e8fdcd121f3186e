"""A small table of its own, so that these tests speak about the database and not about the schema."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, ForeignKey, Integer, MetaData, String, Table, event, insert, select
from sqlalchemy.pool import Pool

from crucible.control.db import SqliteDb

notes_metadata = MetaData()
notes = Table("notes", notes_metadata, Column("id", Integer, primary_key=True), Column("text", String))
replies = Table(
    "replies",
    notes_metadata,
    Column("id", Integer, primary_key=True),
    Column("note", ForeignKey("notes.id", deferrable=True, initially="DEFERRED")),
)


@dataclass(frozen=True)
class Notes:
    """The statements the tests use."""

    create: Callable[[Connection], None] = notes_metadata.create_all

    @staticmethod
    def add(note: int, text: str = "") -> Callable[[Connection], int]:
        def fn(connection: Connection) -> int:
            connection.execute(insert(notes), {"id": note, "text": text})
            return note

        return fn

    @staticmethod
    def reply(reply: int, note: int) -> Callable[[Connection], int]:
        """A reply to a note that is looked for only at COMMIT."""

        def fn(connection: Connection) -> int:
            connection.execute(insert(replies), {"id": reply, "note": note})
            return reply

        return fn

    @staticmethod
    def ids(connection: Connection) -> list[int]:
        return list(connection.scalars(select(notes.c.id).order_by(notes.c.id)))


@dataclass
class Trace:
    """What every connection opened in a test sends, and a hook that runs before each statement."""

    statements: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda statement: None

    def attach(self, driver: sqlite3.Connection, record: object) -> None:
        driver.set_trace_callback(self.note)

    def note(self, statement: str) -> None:
        self.statements.append(statement)
        self.before(statement)

    def count(self, statement: str) -> int:
        return self.statements.count(statement)


class Gate:
    """Holds a thread at a point until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(30)


@pytest.fixture
def table() -> Notes:
    return Notes()


@pytest.fixture
def trace() -> Iterator[Trace]:
    trace = Trace()
    event.listen(Pool, "connect", trace.attach)
    yield trace
    event.remove(Pool, "connect", trace.attach)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
async def sqlite_db(tmp_path: Path, trace: Trace, table: Notes) -> AsyncIterator[SqliteDb]:
    db = SqliteDb(tmp_path / "notes.db", group_seconds=60)  # a slow machine must not split a test's group
    await db.write(table.create)
    yield db
    await db.close()
