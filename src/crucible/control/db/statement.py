"""SQL statements that are compiled once and executed many times.

    JOB = Statement(select(t.jobs).where(t.jobs.c.id == bindparam("job")))
    row = JOB.first(conn, job=id)

SQLAlchemy takes longer to build a statement than a database to answer it. A compiled statement goes straight to the
driver, `sqlite3` or `psycopg`; both take positional parameters.
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
"""A row that a Statement or SQLAlchemy returned, by column."""
Clause = Select[Any] | Insert | Update | Delete


class Statement:
    """A compiled statement. Pass parameters by name, and a sequence for `in_(bindparam(name, expanding=True))`.

    Columns and parameters must have types that drivers convert by themselves: text, numbers, booleans, bytes. Raises
    TypeError for others.
    """

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        self._columns = dict(clause.selected_columns.items()) if isinstance(clause, Select) else {}
        parameters = [part for part in iterate(clause) if isinstance(part, BindParameter)]
        _check_types([*parameters, *self._columns.values()])
        self._lists = tuple(sorted({each.key for each in parameters if each.expanding and each.required}))
        self._compiled: dict[tuple[str, tuple[int, ...]], _Compiled] = {}

    def all(self, conn: Connection, **values: Any) -> Sequence[Row]:
        """Return all rows."""
        compiled = self._for(conn, values)
        return [compiled.row(cells) for cells in compiled.send(conn, values).fetchall()]

    def first(self, conn: Connection, **values: Any) -> Row | None:
        """Return the first row, or None."""
        compiled = self._for(conn, values)
        cells = compiled.send_for_one(conn, values)
        return None if cells is None else compiled.row(cells)

    def column(self, conn: Connection, **values: Any) -> list[Any]:
        """Return the first column of every row."""
        return [cells[0] for cells in self._for(conn, values).send(conn, values).fetchall()]

    def value(self, conn: Connection, **values: Any) -> Any:
        """Return the first column of the first row, or None."""
        cells = self._for(conn, values).send_for_one(conn, values)
        return None if cells is None else cells[0]

    def run(self, conn: Connection, **values: Any) -> int:
        """Execute the statement. Return the number of changed rows."""
        return self._for(conn, values).send(conn, values).rowcount

    def run_each(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute once for every row of parameters. A list must have the same length in all rows."""
        if len(rows) == 1:  # the usual case, and less work for psycopg than `executemany`
            self.run(conn, **rows[0])
        elif rows:
            self._for(conn, rows[0]).send_each(conn, rows)

    def _for(self, conn: Connection, values: Mapping[str, Any]) -> _Compiled:
        """Return the statement as compiled for this dialect, and for the lengths of the lists in `values`."""
        key = conn.dialect.name, tuple([len(values[name]) for name in self._lists]) if self._lists else ()
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = _compile(self._clause, self._columns, conn, values)
        return compiled


def insert_row(table: Table, columns: Iterable[str]) -> Insert:
    """Return an insert of one row, with parameters named like the columns."""
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
    """SQL text with its parameters by position.

    `constants` has a value for every position. Of these, `scalars` are replaced by the named value, and `items` by the
    n-th item of a named list. `flags` are the boolean columns, which SQLite returns as integers.
    """

    sql: str
    constants: tuple[Any, ...]
    scalars: tuple[tuple[int, str], ...]
    items: tuple[tuple[int, str, int], ...]
    columns: tuple[str, ...]
    flags: tuple[str, ...]

    def send(self, conn: Connection, values: Mapping[str, Any]) -> _Cursor:
        cursor = _cursor(conn)
        parameters = self._parameters(values)
        try:
            cursor.execute(self.sql, parameters)
        except conn.dialect.loaded_dbapi.Error as error:
            raise _to_sqlalchemy_error(error, self.sql, conn) from error
        return cursor

    def send_for_one(self, conn: Connection, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        cursor = self.send(conn, values)
        cells = cursor.fetchone()
        cursor.close()
        return cells

    def send_each(self, conn: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        cursor = _cursor(conn)
        parameters = [self._parameters(row) for row in rows]
        try:
            cursor.executemany(self.sql, parameters)
        except conn.dialect.loaded_dbapi.Error as error:
            raise _to_sqlalchemy_error(error, self.sql, conn) from error

    def row(self, cells: tuple[Any, ...]) -> Row:
        row = dict(zip(self.columns, cells, strict=True))
        for name in self.flags:
            if row[name] is not None:
                row[name] = bool(row[name])
        return row

    def _parameters(self, values: Mapping[str, Any]) -> list[Any]:
        parameters = list(self.constants)
        for position, name in self.scalars:
            parameters[position] = values[name]
        for position, name, n in self.items:
            parameters[position] = values[name][n]
        return parameters


def _cursor(conn: Connection) -> _Cursor:
    return cast(_Cursor, conn.connection.dbapi_connection.cursor())  # type: ignore[union-attr]


def _to_sqlalchemy_error(error: Exception, sql: str, conn: Connection) -> BaseException:
    """Return the error that SQLAlchemy would raise, but without invalidating the connection.

    SQLAlchemy would replace an invalidated connection by a new one, outside of the transaction.
    """
    return DBAPIError.instance(sql, None, error, conn.dialect.loaded_dbapi.Error, dialect=conn.dialect)


def _check_types(parts: Iterable[ColumnElement[Any]]) -> None:
    for part in parts:
        if isinstance(part.type, Enum) or not isinstance(part.type, _PLAIN_TYPES):
            raise TypeError(f"A Statement cannot have the type {part.type!r}; execute this one with SQLAlchemy.")


_PLAIN_TYPES = (String, Integer, Float, Boolean, LargeBinary, NullType)


def _compile(
    clause: Clause, columns: Mapping[str, ColumnElement[Any]], conn: Connection, values: Mapping[str, Any]
) -> _Compiled:
    """Compile the clause for lists as long as those in `values`."""
    if not conn.dialect.positional:  # compiled statements are cached by the name of the dialect alone
        raise TypeError("A Statement needs an engine with positional parameters.")
    state = clause.compile(dialect=conn.dialect).construct_expanded_state(dict(values))
    names = state.positiontup or ()
    lists = {item: (name, n) for name, items in state.parameter_expansion.items() for n, item in enumerate(items)}
    items = tuple((index, *lists[name]) for index, name in enumerate(names) if lists.get(name, ("",))[0] in values)
    return _Compiled(
        sql=state.statement,
        constants=tuple(state.parameters[name] for name in names),
        scalars=tuple((index, name) for index, name in enumerate(names) if name in values),
        items=items,
        columns=tuple(columns),
        flags=tuple(name for name, column in columns.items() if isinstance(column.type, Boolean)),
    )
