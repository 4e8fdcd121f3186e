"""Read and write the table `meta`: short values about the database as a whole, by name."""

from __future__ import annotations

from sqlalchemy import Connection, Integer, String, bindparam, delete, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row

_VALUE = Statement(select(t.meta.c.value).where(t.meta.c.key == bindparam("name")))
_CHANGE = Statement(update(t.meta).where(t.meta.c.key == bindparam("name")).values(value=bindparam("value")))
_ADD = Statement(insert_row(t.meta, ["key", "value"]))
_DROP = Statement(delete(t.meta).where(t.meta.c.key.in_(bindparam("names", expanding=True))))
_start = func.substr(t.meta.c.key, 1, bindparam("length", type_=Integer))
_WITH_PREFIX = Statement(select(t.meta.c.key, t.meta.c.value).where(_start == bindparam("prefix", type_=String)))


def get(conn: Connection, key: str) -> str | None:
    """Return the value, or None."""
    value = _VALUE.value(conn, name=key)
    return None if value is None else str(value)


def put(conn: Connection, key: str, value: str) -> None:
    """Add the value or replace it."""
    if _CHANGE.run(conn, name=key, value=value) == 0:
        _ADD.run(conn, key=key, value=value)


def drop(conn: Connection, *keys: str) -> None:
    """Delete the values; missing ones are ignored."""
    if keys:
        _DROP.run(conn, names=keys)


def with_prefix(conn: Connection, prefix: str) -> dict[str, str]:
    """Return all values whose name begins with `prefix`, by name."""
    return {row["key"]: row["value"] for row in _WITH_PREFIX.all(conn, prefix=prefix, length=len(prefix))}
