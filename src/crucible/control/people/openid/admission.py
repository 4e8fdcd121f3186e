"""Decide which user an account of the provider signs in as, and link or create the user at the first login."""

from __future__ import annotations

from sqlalchemy import Connection

from crucible.control.people import audit, projects, users
from crucible.core.errors import BadInput, Conflict
from crucible.core.people.identity import NOBODY, Identity, LoginMethod, Role, validate_user_name
from crucible.core.people.openid import LoginRefusal, OpenIdClient, ProviderIdentity, check_domain


def admit(
    conn: Connection, client: OpenIdClient, person: ProviderIdentity, new_user: str, now: float
) -> Identity | LoginRefusal:
    """Return the user's identity, or why the login is refused (also recorded). `new_user`: the id for a new user."""
    result = check_domain(client, person) or _find_or_create(conn, client, person, new_user, now)
    if isinstance(result, LoginRefusal):
        data = {"why": result.value, "issuer": client.issuer, "subject": person.subject}
        audit.record(conn, NOBODY, "login.refuse", person.email or person.subject, now, data=data)
    return result


def _find_or_create(
    conn: Connection, client: OpenIdClient, person: ProviderIdentity, new_user: str, now: float
) -> Identity | LoginRefusal:
    row = users.find_by_subject(conn, person.subject_hash(client.issuer))
    if row is None and person.email is None:
        return LoginRefusal.UNVERIFIED
    if row is None:
        row = users.find_by_email(conn, str(person.email))
        if row is None:
            return _create(conn, client, person, new_user, now)
        if row["disabled_at"] is None and row["subject"] is not None and row["issuer"] == client.issuer:
            return LoginRefusal.TIED
        if row["disabled_at"] is None:
            _link(conn, row["id"], row["name"], client, person, now)
    if row["disabled_at"] is not None:
        return LoginRefusal.DISABLED
    return users.session_identity(row)


def _create(
    conn: Connection, client: OpenIdClient, person: ProviderIdentity, new_user: str, now: float
) -> Identity | LoginRefusal:
    """Add a user, named after their address, as a member of the configured project. Refused if there is none."""
    if client.project is None:
        return LoginRefusal.UNKNOWN
    email = str(person.email)
    try:
        name = validate_user_name(email)
        users.add(conn, new_user, name, now, admin=False, password=None, email=email)
    except (BadInput, Conflict):
        return LoginRefusal.UNKNOWN
    who = Identity(new_user, name, LoginMethod.SESSION)
    audit.record(conn, who, "user.create", name, now, data={"admin": False, "by": client.issuer})
    projects.ensure(conn, client.project, now)
    projects.set_member(conn, client.project, new_user, Role.MEMBER, now)
    audit.record(conn, who, "member.set", name, now, project=client.project, data={"role": Role.MEMBER.value})
    _link(conn, new_user, name, client, person, now)
    return who


def _link(conn: Connection, user: str, name: str, client: OpenIdClient, person: ProviderIdentity, now: float) -> None:
    users.change(conn, user, {"issuer": client.issuer, "subject": person.subject_hash(client.issuer)})
    data = {"issuer": client.issuer, "subject": person.subject, "email": person.email}
    audit.record(conn, Identity(user, name, LoginMethod.SESSION), "user.tie", name, now, data=data)
