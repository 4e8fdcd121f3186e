"""A statement that is written once and sent many times.

    JOB = Statement(select(t.jobs).where(t.jobs.c.id == bindparam("job")))
    row = JOB.first(conn, job=id)

Building a statement anew costs SQLAlchemy more than a database needs to answer it. A compiled one goes straight to
the driver, `sqlite3` or `psycopg`, which are alike in what is used of them here: both take parameters by their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Delete,
    Enum,
    Float,
    Insert,
    Integer,
    LargeBinary,
    RowMapping,
    Select,
    String,
    Table,
    Update,
    bindparam,
    insert,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import NullType

Row = Mapping[str, Any] | RowMapping
"""What a Statement answers, or SQLAlchemy itself."""
Clause = Select[Any] | Insert | Update | Delete


class Statement:
    """Parameters are given by name; that of `in_(bindparam(name, expanding=True))` is a sequence.

    Its columns and parameters are of the types that drivers speak by themselves: texts, numbers, flags, bytes.
    """

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        self._columns = dict(clause.selected_columns.items()) if isinstance(clause, Select) else {}
        found = [part for part in iterate(clause) if isinstance(part, BindParameter)]
        _check_types([*found, *self._columns.values()])
        self._lists = tuple(sorted({part.key for part in found if part.expanding and part.required}))
        self._compiled: dict[tuple[str, tuple[int, ...]], _Compiled] = {}

    def all(self, conn: Connection, **values: Any) -> Sequence[Row]:
        compiled = self._for(conn, values)
        return [compiled.row(found) for found in compiled.send(conn, values).fetchall()]

    def first(self, conn: Connection, **values: Any) -> Row | None:
        compiled = self._for(conn, values)
        found = compiled.send_for_one(conn, values)
        return None if found is None else compiled.row(found)

    def column(self, conn: Connection, **values: Any) -> list[Any]:
        """The first column of every row."""
        return [found[0] for found in self._for(conn, values).send(conn, values).fetchall()]

    def value(self, conn: Connection, **values: Any) -> Any:
        """The first column of the first row, or None."""
        found = self._for(conn, values).send_for_one(conn, values)
        return None if found is None else found[0]

    def run(self, conn: Connection, **values: Any) -> int:
        """How many rows it changed."""
        return self._for(conn, values).send(conn, values).rowcount

    def run_each(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Once for every row of parameters; a statement with lists needs them of one length in all rows."""
        if len(rows) == 1:  # most often, and less work for psycopg than `executemany`
            self.run(conn, **rows[0])
        elif rows:
            self._for(conn, rows[0]).send_each(conn, rows)

    def _for(self, conn: Connection, values: Mapping[str, Any]) -> _Compiled:
        key = conn.dialect.name, tuple([len(values[name]) for name in self._lists]) if self._lists else ()
        known = self._compiled.get(key)
        if known is None:
            known = self._compiled[key] = _compile(self._clause, self._columns, conn, values)
        return known


def insert_row(table: Table, columns: Iterable[str]) -> Insert:
    """An insert of one row, whose parameters are named like its columns."""
    return insert(table).values({name: bindparam(name) for name in columns})


class _Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: Sequence[Any], /) -> object: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class _Compiled:
    """`sent` holds the parameters that never change; `given` and `items` say where the others go."""

    sql: str
    constants: tuple[Any, ...]
    scalars: tuple[tuple[int, str], ...]
    items: tuple[tuple[int, str, int], ...]
    columns: tuple[str, ...]
    flags: tuple[str, ...]

    def send(self, conn: Connection, values: Mapping[str, Any]) -> _Cursor:
        cursor = _cursor(conn)
        sent = self._parameters(values)
        try:
            cursor.execute(self.sql, sent)
        except conn.dialect.loaded_dbapi.Error as error:
            raise _to_sqlalchemy_error(error, self.sql, conn) from error
        return cursor

    def send_for_one(self, conn: Connection, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        cursor = self.send(conn, values)
        found = cursor.fetchone()
        cursor.close()
        return found

    def send_each(self, conn: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        cursor = _cursor(conn)
        sent = [self._parameters(row) for row in rows]
        try:
            cursor.executemany(self.sql, sent)
        except conn.dialect.loaded_dbapi.Error as error:
            raise _to_sqlalchemy_error(error, self.sql, conn) from error

    def row(self, found: tuple[Any, ...]) -> Row:
        row = dict(zip(self.columns, found, strict=True))
        for name in self.flags:
            if row[name] is not None:
                row[name] = bool(row[name])
        return row

    def _parameters(self, values: Mapping[str, Any]) -> list[Any]:
        sent = list(self.constants)
        for at, name in self.scalars:
            sent[at] = values[name]
        for at, name, n in self.items:
            sent[at] = values[name][n]
        return sent


def _cursor(conn: Connection) -> _Cursor:
    return cast(_Cursor, conn.connection.dbapi_connection.cursor())  # type: ignore[union-attr]


def _to_sqlalchemy_error(error: Exception, sql: str, conn: Connection) -> BaseException:
    """The connection is not invalidated: SQLAlchemy would open another one, outside of the transaction."""
    return DBAPIError.instance(sql, None, error, conn.dialect.loaded_dbapi.Error, dialect=conn.dialect)


def _check_types(parts: Iterable[ColumnElement[Any]]) -> None:
    for part in parts:
        if isinstance(part.type, Enum) or not isinstance(part.type, _PLAIN_TYPES):
            raise TypeError(f"A Statement cannot hold {part.type!r}; let SQLAlchemy send this one.")


_PLAIN_TYPES = (String, Integer, Float, Boolean, LargeBinary, NullType)


def _compile(
    clause: Clause, columns: Mapping[str, ColumnElement[Any]], conn: Connection, values: Mapping[str, Any]
) -> _Compiled:
    """For as many items in each list as `values` have now."""
    if not conn.dialect.positional:  # else it would be kept for connections that give them by place, and the reverse
        raise TypeError("A Statement goes to connections whose engine gives parameters by place.")
    state = clause.compile(dialect=conn.dialect).construct_expanded_state(dict(values))
    names = state.positiontup or ()
    lists = {item: (name, n) for name, items in state.parameter_expansion.items() for n, item in enumerate(items)}
    items = tuple((at, *lists[name]) for at, name in enumerate(names) if lists.get(name, ("",))[0] in values)
    return _Compiled(
        sql=state.statement,
        constants=tuple(state.parameters[name] for name in names),
        scalars=tuple((at, name) for at, name in enumerate(names) if name in values),
        items=items,
        columns=tuple(columns),
        flags=tuple(name for name, column in columns.items() if isinstance(column.type, Boolean)),
    )
