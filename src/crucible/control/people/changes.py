"""What becomes of a user: one change of his row, with all that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from crucible.control.db.statement import Row
from crucible.control.people import audit, tokens, users
from crucible.core.openid import Person, checked_subject
from crucible.core.people import Identity, checked_email
from crucible.core.views.people import UserView


@dataclass(frozen=True)
class UserChange:
    """None leaves a thing as it is. `password` is its hash; an empty `email` is none at all.

    `subject` is the name that the OpenID provider `issuer` has for the user.
    """

    admin: bool | None = None
    disabled: bool | None = None
    password: str | None = None
    email: str | None = None
    subject: str | None = None
    issuer: str = ""

    def __post_init__(self) -> None:
        if self.email:
            checked_email(self.email)
        if self.subject is not None:
            checked_subject(self.subject)

    def make(self, conn: Connection, who: Identity, name: str, now: float) -> UserView:
        """Raises NotFound, Conflict. Whoever got in by what is no longer so is out."""
        row = users.named(conn, name)
        users.change(conn, row["id"], self._values(conn, row, now))
        if self._ends_what_is_open(row):
            tokens.revoke_all(conn, row["id"], now)
        audit.note(conn, who, "user.change", name, now, data=self._told())
        return users.view(users.named(conn, name), users.roles(conn, row["id"]))

    def _values(self, conn: Connection, row: Row, now: float) -> dict[str, Any]:
        wanted: dict[str, Any] = {"admin": self.admin, "password": self.password}
        values = {key: value for key, value in wanted.items() if value is not None}
        if self.disabled is not None:
            values["disabled_at"] = now if self.disabled else None
        if self.email is not None:
            address = checked_email(self.email) if self.email else None
            users.need_free(conn, address, row["id"])
            values |= {"email": address, "subject": None, "issuer": None}
        if self.subject is not None:
            tie = Person(self.subject).tie(self.issuer)
            users.need_untied(conn, tie, row["id"])
            values |= {"subject": tie, "issuer": self.issuer}
        return values

    def _ends_what_is_open(self, row: Row) -> bool:
        untied = row["subject"] is not None and (self.email is not None or self.subject is not None)
        return bool(self.disabled) or self.password is not None or untied

    def _told(self) -> dict[str, object]:
        hidden = None if self.password is None else True
        told = {"admin": self.admin, "disabled": self.disabled, "password": hidden, "email": self.email}
        return {key: value for key, value in {**told, "subject": self.subject}.items() if value is not None}
