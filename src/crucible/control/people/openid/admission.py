"""Who comes in: the user that a person of the provider is tied to, or becomes tied to. Functions of a Connection."""

from __future__ import annotations

from sqlalchemy import Connection

from crucible.control.people import audit, projects, users
from crucible.core.errors import BadInput, Conflict
from crucible.core.people.identity import NOBODY, Identity, Role, Via, checked_user
from crucible.core.people.openid import Client, Person, Refusal, gate


def admit(conn: Connection, client: Client, person: Person, new_user: str, now: float) -> Identity | Refusal:
    """Whom the person stands for here; it is written down either way. `new_user`: the id of one who is made now."""
    found = gate(client, person) or _found(conn, client, person, new_user, now)
    if isinstance(found, Refusal):
        told = {"why": found.value, "issuer": client.issuer, "subject": person.subject}
        audit.note(conn, NOBODY, "login.refuse", person.email or person.subject, now, data=told)
    return found


def _found(conn: Connection, client: Client, person: Person, new_user: str, now: float) -> Identity | Refusal:
    tie = person.tie(client.issuer)
    row = users.tied(conn, tie)
    if row is None and person.email is None:
        return Refusal.UNVERIFIED
    if row is None:
        row = users.addressed(conn, str(person.email))
        if row is None:
            return _made(conn, client, person, new_user, now)
        if row["disabled_at"] is None and row["subject"] is not None and row["issuer"] == client.issuer:
            return Refusal.TIED
        if row["disabled_at"] is None:
            _bind(conn, row["id"], row["name"], client, person, now)
    if row["disabled_at"] is not None:
        return Refusal.DISABLED
    return users.signed_in(row)


def _made(conn: Connection, client: Client, person: Person, new_user: str, now: float) -> Identity | Refusal:
    """A new user, named by his address, as a member of the project that the settings name."""
    if client.project is None:
        return Refusal.UNKNOWN
    email = str(person.email)
    try:
        name = checked_user(email)
        users.add(conn, new_user, name, now, admin=False, password=None, email=email)
    except (BadInput, Conflict):
        return Refusal.UNKNOWN
    who = Identity(new_user, name, Via.SESSION)
    audit.note(conn, who, "user.create", name, now, data={"admin": False, "by": client.issuer})
    projects.ensure(conn, client.project, now)
    projects.join(conn, client.project, new_user, Role.MEMBER, now)
    audit.note(conn, who, "member.set", name, now, project=client.project, data={"role": Role.MEMBER.value})
    _bind(conn, new_user, name, client, person, now)
    return who


def _bind(conn: Connection, user: str, name: str, client: Client, person: Person, now: float) -> None:
    users.change(conn, user, {"issuer": client.issuer, "subject": person.tie(client.issuer)})
    told = {"issuer": client.issuer, "subject": person.subject, "email": person.email}
    audit.note(conn, Identity(user, name, Via.SESSION), "user.tie", name, now, data=told)
