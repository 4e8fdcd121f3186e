"""Sign-ins under way, and codes that wait for a command to fetch its session. Functions of a Connection.

Both work once and for minutes. What a browser or a command has to show is kept as a digest.
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
_FOUND = Statement(select(t.signins).where(_s.state == bindparam("sha256")))
_TAKE = Statement(delete(t.signins).where(_s.state == bindparam("sha256")))
_OLD = Statement(delete(t.signins).where(_s.expires_at <= bindparam("before")))
_HAND = Statement(insert_row(t.handovers, [column.name for column in _h]))
_WAITING = Statement(select(t.handovers).where(_h.code == bindparam("sha256")))
_FETCH = Statement(delete(t.handovers).where(_h.code == bindparam("sha256")))
_UNFETCHED = Statement(delete(t.handovers).where(_h.expires_at <= bindparam("before")))


def random_text() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class SignIn:
    """`path`: where the browser goes afterwards; `command`: who gets the session instead."""

    issuer: str
    redirect_uri: str
    path: str | None = None
    command: WaitingCommand | None = None
    state: str = field(default_factory=random_text)
    nonce: str = field(default_factory=random_text)
    verifier: str = field(default_factory=random_text)
    browser: str = field(default_factory=random_text)


def begin(conn: Connection, new: SignIn, now: float, seconds: float) -> None:
    """Those whose time is over go, so that there are never more than are begun in that time."""
    _OLD.run(conn, before=now)
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
    """The sign-in of this state, once, for the browser that began it; None for any other."""
    row = _FOUND.first(conn, sha256=digest(state))
    if row is None or row["browser"] != digest(browser) or _TAKE.run(conn, sha256=row["state"]) != 1:
        return None
    if row["expires_at"] <= now:
        return None
    command = None if row["port"] is None else WaitingCommand(row["port"], row["challenge"], row["echo"])
    sent = {name: row[name] for name in ("issuer", "redirect_uri", "path", "nonce", "verifier")}
    return SignIn(**sent, command=command, state=state, browser=browser)


def hand_over(conn: Connection, code: str, user: str, challenge: str, now: float, seconds: float) -> None:
    _UNFETCHED.run(conn, before=now)
    _HAND.run(conn, code=digest(code), user=user, challenge=challenge, expires_at=now + seconds)


def fetch(conn: Connection, code: str, challenge: str, now: float) -> str | None:
    """Return the user of this code. The first attempt uses it up, even if it fails the challenge."""
    row = _WAITING.first(conn, sha256=digest(code))
    if row is None or _FETCH.run(conn, sha256=row["code"]) != 1:
        return None
    good = row["challenge"] == challenge and row["expires_at"] > now
    return str(row["user"]) if good else None
