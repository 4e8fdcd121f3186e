"""Read and write the rows of users. The callers check permissions."""

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
_BY_ID = Statement(select(t.users).where(_c.id == bindparam("user")))
_BY_NAME = Statement(select(t.users).where(_c.name == bindparam("name")))
_BY_EMAIL = Statement(select(t.users).where(_c.email == bindparam("email")))
_BY_SUBJECT = Statement(select(t.users).where(_c.subject == bindparam("subject")))
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
    """Add a user. Raises Conflict if the name or the e-mail address is taken."""
    if name == OWNER.name or _BY_NAME.first(conn, name=name) is not None:
        raise Conflict(f"The user {name!r} exists already.", fix="Choose another name.", user=name)
    require_email_free(conn, email)
    _ADD.run(conn, id=user, name=name, admin=admin, password=password, email=email, created_at=now)


def require_email_free(conn: Connection, email: str | None, user: str | None = None) -> None:
    """Raise Conflict if the e-mail address belongs to a user other than `user`."""
    row = None if email is None else find_by_email(conn, email)
    if row is not None and row["id"] != user:
        fix = "An address can belong to one user only. `crucible users` lists them."
        raise Conflict(f"The address {email!r} belongs to another user.", fix=fix, email=email)


def ensure_owner(conn: Connection, now: float) -> None:
    """Add the owner of the state folder if they are missing: other rows refer to their row."""
    if _BY_ID.first(conn, user=OWNER.user) is None:
        owner = {"id": OWNER.user, "name": OWNER.name, "admin": True, "password": None, "email": None}
        _ADD.run(conn, **owner, created_at=now)


def find_by_name(conn: Connection, name: str) -> Row | None:
    return _BY_NAME.first(conn, name=name)


def require_subject_free(conn: Connection, subject: str, user: str) -> None:
    """Raise Conflict if the provider's account is linked to a user other than `user`. `subject`: its hash."""
    row = find_by_subject(conn, subject)
    if row is not None and row["id"] != user:
        fix = f"Unlink it first: crucible users email {row['name']} ''"
        raise Conflict(
            f"This account of the provider is already linked to the user {row['name']!r}.", fix=fix, user=row["name"]
        )


def find_by_email(conn: Connection, email: str) -> Row | None:
    """Return the user with this e-mail address (lower case), or None."""
    return _BY_EMAIL.first(conn, email=email)


def find_by_subject(conn: Connection, subject: str) -> Row | None:
    """Return the user linked to this account of an OpenID provider, or None. `subject`: its hash."""
    return _BY_SUBJECT.first(conn, subject=subject)


def get_user(conn: Connection, user: str) -> Row:
    """Return the user with this id. Users are never deleted."""
    row = _BY_ID.first(conn, user=user)
    assert row is not None, user
    return row


def session_identity(row: Row) -> Identity:
    """Return the identity of a user in a session."""
    return Identity(row["id"], row["name"], LoginMethod.SESSION, admin=bool(row["admin"]))


def find_or_raise(conn: Connection, name: str) -> Row:
    """Return the user with this name. Raises NotFound."""
    row = find_by_name(conn, name)
    if row is None:
        raise NotFound(f"There is no user {name!r}.", fix="`crucible users` lists them.", user=name)
    return row


def change(conn: Connection, user: str, values: Mapping[str, Any]) -> None:
    """Set these columns of a user."""
    if values:
        conn.execute(update(t.users).where(_c.id == user).values(**values))


def has_users(conn: Connection) -> bool:
    """Return whether there is an enabled user besides the owner."""
    return conn.execute(select(_c.id).where(_c.disabled_at.is_(None), _c.id != OWNER.user).limit(1)).first() is not None


def roles(conn: Connection, user: str) -> dict[str, str]:
    """Return a user's roles by project."""
    return {row["project"]: row["role"] for row in _ROLES.all(conn, user=user)}


def list_users(conn: Connection) -> list[UserView]:
    rows = conn.execute(select(t.users).order_by(_c.name)).mappings().all()
    c = t.members.c
    roles_of: dict[str, dict[str, str]] = {}
    for row in conn.execute(select(c.user, c.project, c.role).order_by(c.project)).mappings():
        roles_of.setdefault(row["user"], {})[row["project"]] = row["role"]
    return [user_view(row, roles_of.get(row["id"], {})) for row in rows]


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
