"""Login: users get a session for a one-time link, or for their name and password."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Connection

from crucible.control.people import audit, passwords, tokens, users
from crucible.control.resources.access import access_topic
from crucible.control.runtime.ports import Ports
from crucible.core.errors import Forbidden, NotAllowed, NotFound
from crucible.core.ids import Prefix
from crucible.core.people.identity import (
    EVERY_PERMISSION,
    LONGEST_PASSWORD,
    NOBODY,
    Identity,
    LoginMethod,
    Permission,
)
from crucible.core.secret import Secret
from crucible.core.views.people import TokenView

if TYPE_CHECKING:
    from crucible.control.people.openid import OpenIdLogin

log = structlog.get_logger(__name__)

LINK_SECONDS = 300.0
QUIET_SECONDS = 900.0
"""Seconds without a wrong password after which the next one counts as the first again."""


@dataclass(frozen=True)
class _Credentials:
    user: str = ""
    password: str | None = None


class FailureCounter:
    """Counts wrong passwords by key, so that guessing cannot fill the audit log. Keys are never dropped."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, tuple[int, float]] = {}

    def add(self, key: str) -> int | None:
        """Count one failure. Return the count if it is to be audited (1, 10, 100 and so on), else None."""
        count, last = self._seen.get(key, (0, 0.0))
        now = self._now()
        count = 1 if now - last > QUIET_SECONDS else count + 1
        self._seen[key] = (count, now)
        return count if str(count).strip("0") == "1" else None


class Login:
    """`openid` is None if no OpenID provider is set up."""

    def __init__(self, ports: Ports, openid: OpenIdLogin | None = None) -> None:
        self._ports = ports
        self._openid = openid
        self._throttle = passwords.Throttle(ports.clock.now)
        self._failures = FailureCounter(ports.clock.now)
        self._audit_tasks: set[asyncio.Task[None]] = set()

    @property
    def provider(self) -> str | None:
        """The display name of the OpenID provider, or None."""
        return None if self._openid is None else self._openid.name

    @property
    def openid(self) -> OpenIdLogin:
        """The login with an OpenID provider. Raises NotFound if none is set up."""
        if self._openid is None:
            raise NotFound(
                "This server has no OpenID provider.",
                why="The settings oidc_issuer and oidc_client_id are not set.",
                fix="Log in with a password or a token: crucible login URL --name USER",
            )
        return self._openid

    async def create_link(self, who: Identity) -> TokenView:
        """Return a code that logs in once, within a few minutes."""
        if (
            who.via not in (LoginMethod.OWNER, LoginMethod.TOKEN)
            or who.project is not None
            or who.scopes != EVERY_PERMISSION
        ):
            raise who.token_error(Permission.OPERATE, None)
        id, link = self._ports.ids.new(Prefix.TOKEN), {"name": "login link", "via": tokens.LOGIN}
        return await self._ports.write(
            lambda conn, now: tokens.issue(conn, who, id, now, **link, scopes=who.scopes, seconds=LINK_SECONDS)
        )

    async def redeem(self, code: str, via: LoginMethod = LoginMethod.SESSION) -> TokenView:
        """Return a session for a login link, or the share link itself, which can be opened any number of times.

        Raises NotAllowed for a link that is used, expired or revoked.
        """
        session = self._ports.ids.new(Prefix.TOKEN)

        def open_link(conn: Connection, now: float) -> TokenView | None:
            redeemed = tokens.redeem(conn, code, now)
            if redeemed is None:
                return tokens.share_link(conn, code, now)
            user, makes_until = redeemed
            return _start_session(conn, user, session, now, via, makes_until)

        view = await self._ports.write(open_link)
        if view is None:
            raise NotAllowed(
                "This link is not valid.",
                why="A login link works once, within five minutes; a share link until it expires or is revoked.",
                fix="Make a new login link with `crucible login --link`; for a share link, ask the user who sent it.",
            )
        return view

    async def login(self, name: str, password: str, via: LoginMethod = LoginMethod.SESSION) -> TokenView:
        """Return a session for a name and password. A wrong password takes as long to check as a right one."""
        user = await self._verify(name, password)
        if user is None:
            fix = "Try again, or ask an administrator to set a new password."
            raise NotAllowed("The name or the password is wrong.", fix=fix)
        session = self._ports.ids.new(Prefix.TOKEN)
        return await self._ports.write(lambda conn, now: _start_session(conn, user, session, now, via))

    async def confirm_password(self, name: str, password: str | None) -> None:
        """Raise Forbidden unless the password is the user's.

        Without this, anyone at an unlocked browser could lock the user out.
        """
        if password is None or await self._verify(name, password) is None:
            raise Forbidden(
                "The old password is missing or wrong.",
                why="To change your own password you have to know the old one.",
                fix="Give it as old_password, or ask an administrator to set a new password.",
                field="old_password",
            )

    async def anyone_can_log_in(self) -> bool:
        """Return whether anyone besides the owner can log in."""
        if self._openid is not None and self._openid.creates_users:
            return True
        return await self._ports.db.read(users.has_users)

    async def logout(self, who: Identity) -> None:
        """End the session. A token or share link stays: others may use it too."""
        if who.token is not None and who.via in (LoginMethod.SESSION, LoginMethod.BROWSER):
            token = who.token
            await self._ports.write(lambda conn, now: tokens.revoke(conn, token, now))
            self._ports.wakeups.wake(access_topic(who.user))

    async def _verify(self, name: str, password: str) -> str | None:
        """Return the user of this name and password; None if either is wrong. Raises TooManyAttempts."""
        secret = Secret(password[:LONGEST_PASSWORD])
        with self._throttle.attempt(name):
            kept = await self._ports.db.read(lambda conn: _read_credentials(conn, name))
            right = await self._ports.calls.run(
                "passwords", lambda: passwords.verify_password(secret, kept.password), passwords.HASH_SECONDS
            )
            if not right:
                self._throttle.record_failure(name)
                self._audit_failure(name if kept.user else "")
                return None
            self._throttle.record_success(name)
        return kept.user

    def _audit_failure(self, user: str) -> None:
        """Write a wrong password to the audit log, without the name of an unknown user.

        Such a name is often a password in the wrong field. The response does not wait for this: its time must not
        show whether the user exists.
        """
        count = self._failures.add(user)
        if count is not None:
            data = {"why": "wrong password" if user else "no such user", "count": count}
            writing = self._ports.write(
                lambda conn, at: audit.record(conn, NOBODY, "login.refuse", user, at, data=data)
            )
            task = asyncio.ensure_future(writing)
            self._audit_tasks.add(task)
            task.add_done_callback(self._audit_done)

    def _audit_done(self, task: asyncio.Task[None]) -> None:
        self._audit_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a wrong password was not written to the audit log", error=str(error))

    async def flush_audit(self) -> None:
        """Wait until all wrong passwords are in the audit log."""
        await asyncio.gather(*self._audit_tasks, return_exceptions=True)


def _start_session(
    conn: Connection, user: str, session: str, now: float, via: LoginMethod, makes_until: float | None = None
) -> TokenView:
    who = replace(users.session_identity(users.get_user(conn, user)), makes_until=makes_until)
    return tokens.start_session(conn, who, session, now, via)


def _read_credentials(conn: Connection, name: str) -> _Credentials:
    """Return the credentials that a login is checked against; empty for an unknown or disabled user."""
    row = users.find_by_name(conn, name)
    if row is None or row["disabled_at"] is not None:
        return _Credentials()
    return _Credentials(row["id"], row["password"])
