"""Secrets as rows, and the key that they are encrypted with. Nothing here sees a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, select, update

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.core.people.project_secrets import is_secret_name
from crucible.core.views.people import SecretView

KEY = "secrets_key"
"""In `meta`: the fingerprint of the key that all rows are encrypted with."""

_c = t.secrets.c
_ONE = (_c.project == bindparam("in_project"), _c.name == bindparam("called"))
_ALL = Statement(select(t.secrets).order_by(_c.project, _c.name))
_LISTED = Statement(
    select(_c.name, _c.updated_at, _c.updated_by).where(_c.project == bindparam("in_project")).order_by(_c.name)
)
_NAMED = Statement(
    select(_c.project, _c.name, _c.ciphertext).where(
        _c.project == bindparam("in_project"), _c.name.in_(bindparam("names", expanding=True))
    )
)
_ADD = Statement(insert_row(t.secrets, ["project", "name", "ciphertext", "updated_at", "updated_by"]))
_CHANGE = Statement(
    update(t.secrets)
    .where(*_ONE)
    .values(ciphertext=bindparam("new_text"), updated_at=bindparam("at"), updated_by=bindparam("by"))
)
_REENCRYPT = Statement(update(t.secrets).where(*_ONE).values(ciphertext=bindparam("new_text")))
_REMOVE = Statement(delete(t.secrets).where(*_ONE))
_HOLD = Statement(update(t.meta).where(t.meta.c.key == KEY).values(value=t.meta.c.value))


def lock_key(conn: Connection) -> str | None:
    """Return the fingerprint of the key, locked until this transaction ends against rotations and new secrets."""
    _HOLD.run(conn)
    return meta.get(conn, KEY)


def list_secrets(conn: Connection, project: str) -> list[SecretView]:
    """Return the secrets that users set, not those of the server itself."""
    return [
        SecretView(name=row["name"], updated_at=iso(row["updated_at"]), updated_by=row["updated_by"])
        for row in _LISTED.all(conn, in_project=project)
        if is_secret_name(row["name"])
    ]


def list_rows(conn: Connection) -> Sequence[Row]:
    return _ALL.all(conn)


def rows_by_name(conn: Connection, project: str, names: Iterable[str]) -> dict[str, Row]:
    """Return the rows of those of the names that exist."""
    wanted = sorted(set(names))
    return {row["name"]: row for row in _NAMED.all(conn, in_project=project, names=wanted)} if wanted else {}


def put(conn: Connection, project: str, name: str, ciphertext: str, now: float, by: str) -> bool:
    """Store a secret; return whether it is new."""
    if _CHANGE.run(conn, in_project=project, called=name, new_text=ciphertext, at=now, by=by):
        return False
    _ADD.run(conn, project=project, name=name, ciphertext=ciphertext, updated_at=now, updated_by=by)
    return True


def replace_ciphertext(conn: Connection, project: str, name: str, ciphertext: str) -> None:
    _REENCRYPT.run(conn, in_project=project, called=name, new_text=ciphertext)


def remove(conn: Connection, project: str, name: str) -> bool:
    """Delete a secret; return whether it existed."""
    return _REMOVE.run(conn, in_project=project, called=name) > 0
