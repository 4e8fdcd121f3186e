"""Users as rows. Nothing here checks permissions; see resources/people.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.core.errors import Conflict, NotFound
from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.core.views.people import UserView

_c = t.users.c
_ID = Statement(select(t.users).where(_c.id == bindparam("user")))
_NAMED = Statement(select(t.users).where(_c.name == bindparam("called")))
_BY_EMAIL = Statement(select(t.users).where(_c.email == bindparam("address")))
_BY_SUBJECT = Statement(select(t.users).where(_c.subject == bindparam("tie")))
_ADD = Statement(insert_row(t.users, ["id", "name", "admin", "password", "email", "created_at"]))
_ROLES = Statement(select(t.members.c.project, t.members.c.role).where(t.members.c.user == bindparam("user")))


def add(
    conn: Connection,
    user: str,
    name: str,
    now: float,
    *,
    admin: bool,
    password: str | None,
    email: str | None = None,
) -> None:
    """Add a user. Raises Conflict if the name or the address is taken."""
    if name == OWNER.name or _NAMED.first(conn, called=name) is not None:
        raise Conflict(f"There is a user {name!r} already.", fix="Choose another name.", user=name)
    require_email_free(conn, email)
    _ADD.run(conn, id=user, name=name, admin=admin, password=password, email=email, created_at=now)


def require_email_free(conn: Connection, email: str | None, user: str | None = None) -> None:
    """Raise Conflict if the address belongs to a user other than `user`."""
    row = None if email is None else find_by_email(conn, email)
    if row is not None and row["id"] != user:
        fix = "An address belongs to one user only; `crucible users` lists them."
        raise Conflict(f"The address {email!r} belongs to another user.", fix=fix, email=email)


def ensure_owner(conn: Connection, now: float) -> None:
    """Add the row of the owner of the state folder, which other rows refer to, if it is missing."""
    if _ID.first(conn, user=OWNER.user) is None:
        owner = {"id": OWNER.user, "name": OWNER.name, "admin": True, "password": None, "email": None}
        _ADD.run(conn, **owner, created_at=now)


def find_by_name(conn: Connection, name: str) -> Row | None:
    return _NAMED.first(conn, called=name)


def require_subject_free(conn: Connection, tie: str, user: str) -> None:
    """Raise Conflict if the account of the provider is linked to a user other than `user`."""
    row = find_by_subject(conn, tie)
    if row is not None and row["id"] != user:
        fix = f"Unlink it first: crucible users email {row['name']} ''"
        raise Conflict(
            f"This account of the provider is linked to the user {row['name']!r}.", fix=fix, user=row["name"]
        )


def find_by_email(conn: Connection, email: str) -> Row | None:
    """Return the user with this e-mail address (lower case), or None."""
    return _BY_EMAIL.first(conn, address=email)


def find_by_subject(conn: Connection, tie: str) -> Row | None:
    """Return the user linked to an account of an OpenID provider, by its hash, or None."""
    return _BY_SUBJECT.first(conn, tie=tie)


def get_user(conn: Connection, user: str) -> Row:
    """Return the user with this id. Users are never deleted."""
    row = _ID.first(conn, user=user)
    assert row is not None, user
    return row


def session_identity(row: Row) -> Identity:
    """Return the identity of a user in a session."""
    return Identity(row["id"], row["name"], LoginMethod.SESSION, admin=bool(row["admin"]))


def find_or_raise(conn: Connection, name: str) -> Row:
    row = find_by_name(conn, name)
    if row is None:
        raise NotFound(f"There is no user {name!r}.", fix="`crucible users` lists them.", user=name)
    return row


def change(conn: Connection, user: str, values: Mapping[str, Any]) -> None:
    if values:
        conn.execute(update(t.users).where(_c.id == user).values(**values))


def has_users(conn: Connection) -> bool:
    """Return whether there is an enabled user besides the owner."""
    return conn.execute(select(_c.id).where(_c.disabled_at.is_(None), _c.id != OWNER.user).limit(1)).first() is not None


def roles(conn: Connection, user: str) -> dict[str, str]:
    return {row["project"]: row["role"] for row in _ROLES.all(conn, user=user)}


def list_users(conn: Connection) -> list[UserView]:
    rows = conn.execute(select(t.users).order_by(_c.name)).mappings().all()
    c = t.members.c
    held: dict[str, dict[str, str]] = {}
    for row in conn.execute(select(c.user, c.project, c.role).order_by(c.project)).mappings():
        held.setdefault(row["user"], {})[row["project"]] = row["role"]
    return [user_view(row, held.get(row["id"], {})) for row in rows]


def user_view(row: Row, roles: Mapping[str, str]) -> UserView:
    return UserView(
        id=row["id"],
        name=row["name"],
        admin=bool(row["admin"]),
        password=row["password"] is not None,
        email=row["email"],
        tied=row["subject"] is not None,
        disabled=row["disabled_at"] is not None,
        projects=dict(roles),
        created_at=iso(row["created_at"]),
    )
