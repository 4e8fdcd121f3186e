"""What becomes of a user: one change of his row, with all that follows from it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from crucible.control.db.statement import Row
from crucible.control.people import audit, tokens, users
from crucible.core.people.identity import Identity, validate_email
from crucible.core.people.openid import ProviderIdentity, validate_subject
from crucible.core.requests import UserChange
from crucible.core.views.people import UserView


def change_user(
    conn: Connection, who: Identity, name: str, change: UserChange, now: float, *, password: str | None, issuer: str
) -> UserView:
    """Raises NotFound, Conflict. Whoever got in by what is no longer so is out.

    `password` is the hash of a new one. `issuer` is the OpenID provider that `change.subject` is of.
    """
    row = users.find_or_raise(conn, name)
    users.change(conn, row["id"], _values(conn, row, change, now, password, issuer))
    if _ends_what_is_open(row, change):
        tokens.revoke_all(conn, row["id"], now)
    audit.record(conn, who, "user.change", name, now, data=_told(change))
    return users.user_view(users.find_or_raise(conn, name), users.roles(conn, row["id"]))


def _values(
    conn: Connection, row: Row, change: UserChange, now: float, password: str | None, issuer: str
) -> dict[str, Any]:
    wanted: dict[str, Any] = {"admin": change.admin, "password": password}
    values = {key: value for key, value in wanted.items() if value is not None}
    if change.disabled is not None:
        values["disabled_at"] = now if change.disabled else None
    if change.email is not None:
        address = validate_email(change.email) if change.email else None
        users.require_email_free(conn, address, row["id"])
        values |= {"email": address, "subject": None, "issuer": None}
    if change.subject is not None:
        tie = ProviderIdentity(validate_subject(change.subject)).subject_hash(issuer)
        users.require_subject_free(conn, tie, row["id"])
        values |= {"subject": tie, "issuer": issuer}
    return values


def _ends_what_is_open(row: Row, change: UserChange) -> bool:
    untied = row["subject"] is not None and (change.email is not None or change.subject is not None)
    return bool(change.disabled) or change.password is not None or untied


def _told(change: UserChange) -> dict[str, object]:
    told = change.model_dump(include={"admin", "disabled", "email", "subject"}, exclude_none=True)
    return told if change.password is None else {**told, "password": True}
