"""The door: how a person gets a session, by a link that works once or by name and password."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Connection

from crucible.control.people import audit, passwords, tokens, users
from crucible.control.people.bursts import Bursts
from crucible.control.people.office import Office
from crucible.control.ports import Ports
from crucible.control.views import View
from crucible.core.errors import Forbidden, NotAllowed, NotFound
from crucible.core.people import (
    EVERY_PERMISSION,
    LONGEST_PASSWORD,
    NOBODY,
    Identity,
    Permission,
    Via,
)
from crucible.core.secret import Secret

if TYPE_CHECKING:
    from crucible.control.people.openid import OpenIdLogin

log = structlog.get_logger(__name__)

LINK_SECONDS = 300.0


@dataclass(frozen=True)
class _Kept:
    user: str = ""
    password: str | None = None


class Door(Office):
    def __init__(self, ports: Ports, openid: OpenIdLogin | None = None) -> None:
        super().__init__(ports)
        self._openid = openid
        self._throttle = passwords.Throttle(ports.clock.now)
        self._wrong = Bursts(ports.clock.now)
        self._notes: set[asyncio.Task[None]] = set()

    @property
    def provider(self) -> str | None:
        """What people call the OpenID provider; None if there is none."""
        return None if self._openid is None else self._openid.name

    @property
    def openid(self) -> OpenIdLogin:
        """Raises NotFound where no OpenID provider is set up."""
        if self._openid is None:
            raise NotFound(
                "This server has no OpenID provider.",
                why="The settings oidc_issuer and oidc_client_id are not set.",
                fix="Log in with a password or a token: crucible login URL --name USER",
            )
        return self._openid

    async def link(self, who: Identity) -> View:
        """A code that is good for one login within a few minutes."""
        if who.via not in (Via.OWNER, Via.TOKEN) or who.project is not None or who.scopes != EVERY_PERMISSION:
            raise who.beyond_token(Permission.OPERATE, None)
        return await self._issue(who, "login link", tokens.LOGIN, who.scopes, LINK_SECONDS)

    async def redeem(self, code: str) -> View:
        """A session for a login link, or what a share link is; raises NotAllowed for one that is used or too old."""
        user = await self._write(lambda conn, now: tokens.redeem(conn, code, now))
        if user is None:
            shared = await self._shared(code)
            if shared is not None:
                return shared
            raise NotAllowed(
                "This login link is not good.",
                why="One that logs in works once, for five minutes; one that shares a job for as long as was said.",
                fix="`crucible login --link` makes a new one; a share link, whoever gave it.",
            )
        return await self._session_of(user)

    async def login(self, name: str, password: str) -> View:
        """A session for a name and its password. A wrong one costs as much time as a right one."""
        user = await self._proven(name, password)
        if user is None:
            raise NotAllowed("The name or the password is wrong.", fix="Try again; an administrator can set a new one.")
        return await self._session_of(user)

    async def confirm(self, name: str, password: str | None) -> None:
        """Raise Forbidden unless it is the user's: whoever found his browser open does not lock him out of it."""
        if password is None or await self._proven(name, password) is None:
            raise Forbidden(
                "The old password is missing or wrong.",
                why="Your own password changes only for somebody who knows the old one.",
                fix="Give it as old_password; an administrator can set a new one without it.",
                field="old_password",
            )

    async def anybody(self) -> bool:
        """Whether there is somebody, besides the owner, who can come in."""
        if self._openid is not None and self._openid.makes_users:
            return True
        return await self._ports.db.read(users.anybody)

    async def logout(self, who: Identity) -> None:
        """Ends the session. A token or a share link is not ended by one of those who use it."""
        if who.token is not None and who.via is Via.SESSION:
            token = who.token
            await self._write(lambda conn, now: tokens.revoke(conn, token, now))

    async def _proven(self, name: str, password: str) -> str | None:
        """The user of this name and password; None for a wrong one, however it is wrong. Raises TooManyTries."""
        given = Secret(password[:LONGEST_PASSWORD])
        with self._throttle.trying(name):
            kept = await self._ports.db.read(lambda conn: _kept(conn, name))
            right = await self._ports.calls.run(
                "passwords", lambda: passwords.matches(given, kept.password), passwords.HASH_SECONDS
            )
            if not right:
                self._throttle.wrong(name)
                self._note_wrong(name if kept.user else "")
                return None
            self._throttle.right(name)
        return kept.user

    def _note_wrong(self, user: str) -> None:
        """A name that is no user's is not written down: it is often a password in the wrong field.

        Nobody waits for it: how long an answer takes must not tell whether there is such a user.
        """
        count = self._wrong.one_more(user)
        if count is not None:
            told = {"why": "wrong password" if user else "no such user", "count": count}
            writing = self._write(lambda conn, now: audit.note(conn, NOBODY, "login.refuse", user, now, data=told))
            task = asyncio.ensure_future(writing)
            self._notes.add(task)
            task.add_done_callback(self._noted)

    def _noted(self, task: asyncio.Task[None]) -> None:
        self._notes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a wrong password was not written down", error=str(error))

    async def notes_written(self) -> None:
        """Wait until what is known of wrong passwords is in the audit log."""
        await asyncio.gather(*self._notes, return_exceptions=True)

    async def _shared(self, token: str) -> View | None:
        """A share link is its own session: it shows one job, as often as it is opened."""

        def look(conn: Connection, now: float) -> View | None:
            found = tokens.identified(conn, token, now)
            if found is None or found.who.via is not Via.SHARE:
                return None
            row = {**tokens.of(conn, str(found.who.token)), "user_name": found.who.name}
            return {**tokens.view(row, now), "token": token}

        return await self._write(look)

    async def _session_of(self, user: str) -> View:
        return await self._session(await self._ports.db.read(lambda conn: users.signed_in(users.of(conn, user))))


def _kept(conn: Connection, name: str) -> _Kept:
    """What a login is checked against; nothing for a user who is not there or may not come in."""
    row = users.find(conn, name)
    if row is None or row["disabled_at"] is not None:
        return _Kept()
    return _Kept(row["id"], row["password"])
