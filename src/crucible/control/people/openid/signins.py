"""Read and write the rows of pending sign-ins, and of codes with which a command fetches its session.

Both work once, for some minutes. The secrets that a browser or a command has to present are stored as digests.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.control.people.tokens import digest
from crucible.core.people.openid import WaitingCommand

_s, _h = t.signins.c, t.handovers.c
_ADD = Statement(insert_row(t.signins, [column.name for column in _s]))
_BY_STATE = Statement(select(t.signins).where(_s.state == bindparam("sha256")))
_DELETE = Statement(delete(t.signins).where(_s.state == bindparam("sha256")))
_DELETE_EXPIRED = Statement(delete(t.signins).where(_s.expires_at <= bindparam("before")))
_ADD_CODE = Statement(insert_row(t.handovers, [column.name for column in _h]))
_BY_CODE = Statement(select(t.handovers).where(_h.code == bindparam("sha256")))
_DELETE_CODE = Statement(delete(t.handovers).where(_h.code == bindparam("sha256")))
_DELETE_EXPIRED_CODES = Statement(delete(t.handovers).where(_h.expires_at <= bindparam("before")))


def random_text() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class SignIn:
    """A pending sign-in. `path`: where the browser goes afterwards; `command`: gets the session instead."""

    issuer: str
    redirect_uri: str
    path: str | None = None
    command: WaitingCommand | None = None
    state: str = field(default_factory=random_text)
    nonce: str = field(default_factory=random_text)
    verifier: str = field(default_factory=random_text)
    browser: str = field(default_factory=random_text)


def begin(conn: Connection, new: SignIn, now: float, seconds: float) -> None:
    """Store a new sign-in for `seconds`, and delete expired ones, which bounds their number."""
    _DELETE_EXPIRED.run(conn, before=now)
    command = new.command
    _ADD.run(
        conn,
        state=digest(new.state),
        browser=digest(new.browser),
        issuer=new.issuer,
        nonce=new.nonce,
        verifier=new.verifier,
        redirect_uri=new.redirect_uri,
        path=new.path,
        port=command and command.port,
        challenge=command and command.challenge,
        echo=command and command.echo,
        expires_at=now + seconds,
    )


def take(conn: Connection, state: str, browser: str, now: float) -> SignIn | None:
    """Return and delete the sign-in with this state, or None if unknown, expired, or begun in another browser."""
    row = _BY_STATE.first(conn, sha256=digest(state))
    if row is None or row["browser"] != digest(browser) or _DELETE.run(conn, sha256=row["state"]) != 1:
        return None
    if row["expires_at"] <= now:
        return None
    command = None if row["port"] is None else WaitingCommand(row["port"], row["challenge"], row["echo"])
    fields = {name: row[name] for name in ("issuer", "redirect_uri", "path", "nonce", "verifier")}
    return SignIn(**fields, command=command, state=state, browser=browser)


def hand_over(conn: Connection, code: str, user: str, challenge: str, now: float, seconds: float) -> None:
    """Store a code for `seconds`, with which the command that made the challenge fetches a session of the user."""
    _DELETE_EXPIRED_CODES.run(conn, before=now)
    _ADD_CODE.run(conn, code=digest(code), user=user, challenge=challenge, expires_at=now + seconds)


def fetch(conn: Connection, code: str, challenge: str, now: float) -> str | None:
    """Return the user of this code, or None. The first attempt uses up the code, even if its challenge is wrong."""
    row = _BY_CODE.first(conn, sha256=digest(code))
    if row is None or _DELETE_CODE.run(conn, sha256=row["code"]) != 1:
        return None
    valid = row["challenge"] == challenge and row["expires_at"] > now
    return str(row["user"]) if valid else None
