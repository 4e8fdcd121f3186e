"""Read and write the rows of tokens. Only digests are stored, so no token can be read back.

One table holds users' own tokens, browser sessions, share links, and login links, which work once and start a session.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, or_, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.control.people import audit, users
from crucible.core.errors import NotFound
from crucible.core.people.identity import SESSION_SECONDS, Identity, LoginMethod, Permission, Role
from crucible.core.secret import Secret
from crucible.core.views.people import TokenView

PREFIX = "crt_"
"""Makes a token recognisable to people and to scanners for leaked secrets."""
LOGIN = "login"
USED_AT_PRECISION = 60.0
"""Minimum seconds between two updates of a token's last use."""
RETENTION_SECONDS = 30 * 86400.0
"""Seconds for which a revoked or expired token is kept and listed."""
MAX_LISTED = 500
MAX_SECONDS = 10 * 365 * 86400.0
"""The longest lifetime in seconds of a token that expires."""

_c, _u = t.tokens.c, t.users.c
_COLUMNS = (
    "id",
    "user",
    "name",
    "via",
    "digest",
    "scopes",
    "project",
    "job",
    "created_at",
    "expires_at",
    "makes_until",
)
_ADD = Statement(insert_row(t.tokens, _COLUMNS))
_BY_DIGEST = Statement(
    select(t.tokens, _u.name.label("user_name"), _u.admin, _u.disabled_at)
    .join(t.users, _u.id == _c.user)
    .where(_c.digest == bindparam("sha256"))
)
_MARK_USED = Statement(update(t.tokens).where(_c.id == bindparam("token")).values(used_at=bindparam("at")))
_not_revoked = _c.revoked_at.is_(None)
_REVOKE = Statement(
    update(t.tokens).where(_c.id == bindparam("token"), _not_revoked).values(revoked_at=bindparam("at"))
)
_REVOKE_ALL = Statement(
    update(t.tokens).where(_c.user == bindparam("of_user"), _not_revoked).values(revoked_at=bindparam("at"))
)
_ENDS = (_c.revoked_at, _c.expires_at)
_ENDED = tuple(
    Statement(select(_c.id).where(end < bindparam("before")).order_by(end).limit(bindparam("limit"))) for end in _ENDS
)
_DELETE = Statement(
    delete(t.tokens).where(
        _c.id.in_(bindparam("ids", expanding=True)), or_(*(end < bindparam("before") for end in _ENDS))
    )
)


def new_token() -> Secret:
    """Return a token of 256 random bits. It cannot be guessed, so a plain hash of it is safe to store."""
    return Secret(PREFIX + secrets.token_urlsafe(32))


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def issue(
    conn: Connection,
    who: Identity,
    id: str,
    now: float,
    *,
    name: str,
    via: str,
    scopes: frozenset[Permission],
    seconds: float | None,
    project: str | None = None,
    job: str | None = None,
    user: str | None = None,
) -> TokenView:
    """Store a token, and record who created it. Only the returned view contains the token itself.

    `seconds`: lifetime, or None for a token that does not expire. `project` and `job` restrict it to one. `user`: name
    of its user (default: the creator). What a token makes ends with it, through logins too.
    """
    users.ensure_owner(conn, now)
    secret, names = new_token(), sorted(scopes)
    ends = [who.makes_until, None if seconds is None else now + min(seconds, MAX_SECONDS)]
    expires_at = min((end for end in ends if end is not None), default=None)
    _ADD.run(
        conn,
        id=id,
        user=who.user if user is None else users.find_or_raise(conn, user)["id"],
        name=name,
        via=via,
        digest=digest(secret.reveal()),
        scopes=" ".join(names),
        project=project,
        job=job,
        created_at=now,
        expires_at=expires_at,
        makes_until=who.makes_until,
    )
    audit.record(conn, who, f"{via}.create", id, now, project=project, data={"name": name, "scopes": names})
    return TokenView(
        id=id,
        name=name,
        via=via,
        user=user or who.name,
        scopes=tuple(names),
        project=project,
        job=job,
        expires_at=iso(expires_at),
        token=secret.reveal(),
    )


def start_session(conn: Connection, who: Identity, token: str, now: float, via: LoginMethod) -> TokenView:
    """Issue a session, for a program or a browser. `token`: the id of its row."""
    return issue(conn, who, token, now, name="session", via=via.value, scopes=who.scopes, seconds=SESSION_SECONDS)


@dataclass(frozen=True)
class TokenIdentity:
    who: Identity
    stale: bool
    """Whether the recorded time of the token's last use should be updated."""


def identify(conn: Connection, token: str, now: float) -> TokenIdentity | None:
    """Return the identity of a token, or None if it is unknown, expired, revoked, or its user is disabled."""
    row = _BY_DIGEST.first(conn, sha256=digest(token))
    if row is None or row["via"] == LOGIN or not _is_good(row, now):
        return None
    return TokenIdentity(_identity(conn, row), now - (row["used_at"] or 0.0) > USED_AT_PRECISION)


def redeem(conn: Connection, token: str, now: float) -> tuple[str, float | None] | None:
    """Use up a login link. Return the id of its user, and when all that is made with it ends.

    None if the link is unknown, used or expired.
    """
    row = _BY_DIGEST.first(conn, sha256=digest(token))
    if row is None or row["via"] != LOGIN or not _is_good(row, now):
        return None
    return (str(row["user"]), row["makes_until"]) if _REVOKE.run(conn, token=row["id"], at=now) == 1 else None


def mark_used(conn: Connection, token: str, now: float) -> None:
    _MARK_USED.run(conn, token=token, at=now)


def revoke(conn: Connection, token: str, now: float) -> bool:
    """Revoke the token. Return False if it was revoked already."""
    return _REVOKE.run(conn, token=token, at=now) > 0


def revoke_all(conn: Connection, user: str, now: float) -> int:
    """Revoke all tokens of a user. Return their number."""
    return _REVOKE_ALL.run(conn, of_user=user, at=now)


def list_ended(conn: Connection, before: float, limit: int) -> list[str]:
    """Return the ids of up to `limit` tokens that were revoked, and of as many that expired, before that time."""
    return list(dict.fromkeys(id for ends in _ENDED for id in ends.column(conn, before=before, limit=limit)))


def delete_ended(conn: Connection, ids: Sequence[str], before: float) -> int:
    """Delete the tokens that ended before that time. Return their number. The audit log keeps their entries."""
    return _DELETE.run(conn, ids=list(ids), before=before)


def find_token(conn: Connection, ref: str) -> Row:
    """Return the token with this id, or the only one whose id ends so. Raises NotFound."""
    ending = ref.lower().removeprefix("tok-")
    if len(ending) < 3 or not ending.isalnum():
        raise not_found(ref)
    query = select(t.tokens).where(_c.id.endswith(ending), _c.via != LOGIN).limit(2)
    rows = conn.execute(query).mappings().all()
    if len(rows) != 1:
        raise not_found(ref)
    return rows[0]


def list_tokens(conn: Connection, user: str | None, now: float) -> list[TokenView]:
    """Return the tokens of a user (None: of all users), newest first, without login links and long-ended ones."""
    query = (
        select(t.tokens, _u.name.label("user_name"))
        .join(t.users, _u.id == _c.user)
        .where(_c.via != LOGIN, *(or_(end.is_(None), end > now - RETENTION_SECONDS) for end in _ENDS))
        .order_by(_c.id.desc())
        .limit(MAX_LISTED)
    )
    if user is not None:
        query = query.where(_c.user == user)
    return [_view(row, now) for row in conn.execute(query).mappings()]


def share_link(conn: Connection, token: str, now: float) -> TokenView | None:
    """Return a valid share link with the token itself, or None for anything else."""
    row = _BY_DIGEST.first(conn, sha256=digest(token))
    if row is None or row["via"] != LoginMethod.SHARE or not _is_good(row, now):
        return None
    return _view(row, now).model_copy(update={"token": token})


def _view(row: Row, now: float) -> TokenView:
    return TokenView(
        id=row["id"],
        user=row["user_name"],
        name=row["name"],
        via=row["via"],
        scopes=row["scopes"].split(),
        project=row["project"],
        job=row["job"],
        state=_state(row, now),
        created_at=iso(row["created_at"]),
        expires_at=iso(row["expires_at"]),
        used_at=iso(row["used_at"]),
    )


def _is_good(row: Row, now: float) -> bool:
    return row["disabled_at"] is None and _state(row, now) == "good"


def _state(row: Row, now: float) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    return "expired" if row["expires_at"] is not None and row["expires_at"] <= now else "good"


def _identity(conn: Connection, row: Row) -> Identity:
    shared, login = row["via"] == LoginMethod.SHARE, row["via"] in (LoginMethod.SESSION, LoginMethod.BROWSER)
    roles = {project: Role(role) for project, role in users.roles(conn, row["user"]).items()}
    if shared:  # valid only while the user who created it may see the project
        roles = {name: Role.VIEWER for name in (row["project"],) if row["admin"] or name in roles}
    return Identity(
        user=row["user"],
        name=row["user_name"],
        via=LoginMethod(row["via"]),
        admin=bool(row["admin"]) and not shared,
        roles=roles,
        scopes=frozenset(Permission(name) for name in row["scopes"].split()),
        project=row["project"],
        job=row["job"],
        token=row["id"],
        expires_at=row["expires_at"],
        makes_until=row["makes_until"] if login else row["expires_at"],
    )


def not_found(ref: str) -> NotFound:
    return NotFound(f"There is no token {ref!r}.", fix="`crucible tokens` lists yours.")
