"""The table `meta`: small facts about the database as a whole, by name. Functions of a Connection."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update

from crucible.control.db import schema as t


def get(conn: Connection, key: str) -> str | None:
    value = conn.execute(select(t.meta.c.value).where(t.meta.c.key == key)).scalar()
    return None if value is None else str(value)


def put(conn: Connection, key: str, value: str) -> None:
    if conn.execute(update(t.meta).where(t.meta.c.key == key).values(value=value)).rowcount == 0:
        conn.execute(insert(t.meta).values(key=key, value=value))


def drop(conn: Connection, *keys: str) -> None:
    """Not there is fine."""
    if keys:
        conn.execute(delete(t.meta).where(t.meta.c.key.in_(keys)))


def below(conn: Connection, prefix: str) -> dict[str, str]:
    """Everything whose name begins with `prefix`."""
    found = select(t.meta.c.key, t.meta.c.value).where(t.meta.c.key.startswith(prefix, autoescape=True))
    return {row.key: row.value for row in conn.execute(found).all()}
