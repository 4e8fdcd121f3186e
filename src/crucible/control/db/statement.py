"""A statement that is written once and sent many times.

    JOB = Statement(select(t.jobs).where(t.jobs.c.id == bindparam("job")))
    row = JOB.first(conn, job=id)

Building a statement anew costs SQLAlchemy more than SQLite needs to answer it. On SQLite a compiled one goes
straight to the driver; on PostgreSQL SQLAlchemy sends it, compiled once as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    Boolean,
    Connection,
    Delete,
    Insert,
    RowMapping,
    Select,
    Table,
    Update,
    bindparam,
    insert,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.visitors import iterate

from crucible.control.db.connection import driver_of

Row = Mapping[str, Any] | RowMapping
Clause = Select[Any] | Insert | Update | Delete


class Statement:
    """Parameters are given by name; that of `in_(bindparam(name, expanding=True))` is a sequence."""

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        found = [part for part in iterate(clause) if isinstance(part, BindParameter)]
        self._lists = tuple(sorted({part.key for part in found if part.expanding and part.required}))
        self._compiled: dict[tuple[int, ...], _Compiled] = {}

    def all(self, conn: Connection, **values: Any) -> Sequence[Row]:
        if conn.dialect.name != "sqlite":
            return conn.execute(self._clause, values).mappings().all()
        compiled = self._for(conn, values)
        return [compiled.row(found) for found in compiled.send(conn, values).fetchall()]

    def first(self, conn: Connection, **values: Any) -> Row | None:
        if conn.dialect.name != "sqlite":
            return conn.execute(self._clause, values).mappings().first()
        compiled = self._for(conn, values)
        cursor = compiled.send(conn, values)
        found = cursor.fetchone()
        cursor.close()
        return None if found is None else compiled.row(found)

    def column(self, conn: Connection, **values: Any) -> list[Any]:
        """The first column of every row."""
        if conn.dialect.name != "sqlite":
            return list(conn.execute(self._clause, values).scalars())
        return [found[0] for found in self._for(conn, values).send(conn, values).fetchall()]

    def value(self, conn: Connection, **values: Any) -> Any:
        """The first column of the first row, or None."""
        if conn.dialect.name != "sqlite":
            return conn.execute(self._clause, values).scalar()
        cursor = self._for(conn, values).send(conn, values)
        found = cursor.fetchone()
        cursor.close()
        return None if found is None else found[0]

    def run(self, conn: Connection, **values: Any) -> int:
        """How many rows it changed."""
        if conn.dialect.name != "sqlite":
            return int(conn.execute(self._clause, values).rowcount)
        return self._for(conn, values).send(conn, values).rowcount

    def run_each(self, conn: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Once for every row of parameters."""
        if conn.dialect.name != "sqlite":
            conn.execute(self._clause, [dict(row) for row in rows])
            return
        for row in rows:
            self.run(conn, **row)

    def _for(self, conn: Connection, values: Mapping[str, Any]) -> _Compiled:
        key = tuple([len(values[name]) for name in self._lists]) if self._lists else ()
        known = self._compiled.get(key)
        if known is None:
            known = self._compiled[key] = _compile(self._clause, conn, values)
        return known


def inserting(table: Table, columns: Iterable[str]) -> Insert:
    """An insert of one row, whose parameters are named like its columns."""
    return insert(table).values({name: bindparam(name) for name in columns})


@dataclass(frozen=True)
class _Compiled:
    """`sent` holds the parameters that never change; `given` and `items` say where the others go."""

    sql: str
    sent: tuple[Any, ...]
    given: tuple[tuple[int, str], ...]
    items: tuple[tuple[int, str, int], ...]
    columns: tuple[str, ...]
    flags: tuple[str, ...]

    def send(self, conn: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        sent = list(self.sent)
        for at, name in self.given:
            sent[at] = values[name]
        for at, name, n in self.items:
            sent[at] = values[name][n]
        try:
            return driver_of(conn).execute(self.sql, sent)
        except sqlite3.Error as error:
            raise DBAPIError.instance(self.sql, None, error, sqlite3.Error) from error

    def row(self, found: tuple[Any, ...]) -> Row:
        row = dict(zip(self.columns, found, strict=True))
        for name in self.flags:
            if row[name] is not None:
                row[name] = bool(row[name])
        return row


def _compile(clause: Clause, conn: Connection, values: Mapping[str, Any]) -> _Compiled:
    """For as many items in each list as `values` have now."""
    state = clause.compile(dialect=conn.dialect).construct_expanded_state(dict(values))
    names = state.positiontup or ()
    lists = {item: (name, n) for name, items in state.parameter_expansion.items() for n, item in enumerate(items)}
    items = tuple((at, *lists[name]) for at, name in enumerate(names) if lists.get(name, ("",))[0] in values)
    chosen = dict(clause.selected_columns.items()) if isinstance(clause, Select) else {}
    return _Compiled(
        sql=state.statement,
        sent=tuple(state.parameters[name] for name in names),
        given=tuple((at, name) for at, name in enumerate(names) if name in values),
        items=items,
        columns=tuple(chosen),
        flags=tuple(name for name, column in chosen.items() if isinstance(column.type, Boolean)),
    )
