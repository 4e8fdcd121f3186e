"""Tokens of users, and share links, which show one job to anyone who has them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection

from crucible.control.people import audit, tokens
from crucible.control.resources.access import Access, access_topic
from crucible.control.runtime.ports import Listener, Ports
from crucible.core.ids import Prefix
from crucible.core.people.identity import Identity, LoginMethod, Permission
from crucible.core.requests import NewToken
from crucible.core.views.people import RevokedView, TokenPage, TokenView


class Tokens:
    def __init__(self, ports: Ports, access: Access) -> None:
        self._ports = ports
        self._access = access

    async def identify(self, token: str) -> Identity | None:
        """Return the identity that a token stands for, or None if it is not valid."""
        now = self._ports.clock.now()
        identified = await self._ports.db.read(lambda conn: tokens.identify(conn, token, now))
        if identified is None:
            return None
        if identified.stale:
            used = str(identified.who.token)
            await self._ports.write(lambda conn, now: tokens.mark_used(conn, used, now))
        return identified.who

    async def list_tokens(self, who: Identity, *, all: bool = False) -> TokenPage:
        """Return the caller's tokens that reach no further than the one used; with `all`, for administrators, all."""
        _refuse_share_link(who)
        if all:
            who.require(Permission.OPERATE)
        user, now = None if all else who.user, self._ports.clock.now()
        views = await self._ports.db.read(lambda conn: tokens.list_tokens(conn, user, now))
        return TokenPage(items=tuple(view for view in views if all or _manages(who, view.scopes, view.project)))

    async def create(self, who: Identity, new: NewToken) -> TokenView:
        """Create a token; only this view contains the token itself. It grants no more than the caller has."""
        _refuse_share_link(who)
        if new.user not in (None, who.name):
            who.require(Permission.OPERATE)
        wider = new.scopes - who.scopes
        if wider or who.project not in (None, new.project):
            raise who.token_error(next(iter(sorted(wider)), Permission.READ), new.project)
        if new.project is not None:
            await self._access.require_project(who, new.project)
        return await self._issue(
            who,
            name=new.name,
            via=LoginMethod.TOKEN.value,
            scopes=new.scopes,
            seconds=new.seconds,
            project=new.project,
            user=new.user,
        )

    async def share(self, who: Identity, job: str, project: str, name: str, seconds: float) -> TokenView:
        """Return a token that shows one job and nothing else. `job` must be one that the caller may see."""
        who.require(Permission.WRITE, project)
        read = frozenset({Permission.READ})
        return await self._issue(
            who, name=name, via=LoginMethod.SHARE.value, scopes=read, seconds=seconds, project=project, job=job
        )

    async def revoke(self, who: Identity, ref: str) -> RevokedView:
        """Revoke a token that reaches no further than the one used; idempotent.

        A token may always revoke itself. Administrators may revoke those of all users.
        """
        _refuse_share_link(who)

        def end(conn: Connection, now: float) -> tuple[str, RevokedView]:
            row = tokens.find_token(conn, ref)
            own = row["user"] == who.user and _manages(who, row["scopes"].split(), row["project"])
            if not own and row["id"] != who.token and not who.may(Permission.OPERATE):
                raise tokens.not_found(ref)
            if row["id"] != who.token and Permission.WRITE not in who.scopes:
                raise who.token_error(Permission.WRITE, row["project"])
            if tokens.revoke(conn, row["id"], now):
                audit.record(conn, who, "token.revoke", row["id"], now, project=row["project"])
            return row["user"], RevokedView(id=row["id"], name=row["name"])

        user, revoked = await self._ports.write(end)
        self._ports.wakeups.wake(access_topic(user))
        return revoked

    def watch_access(self, who: Identity) -> AbstractContextManager[Listener]:
        """Return what is woken when a token of the caller ends, or what they may do changes."""
        return self._ports.wakeups.listening(access_topic(who.user))

    def seconds_left(self, who: Identity) -> float:
        """Return the seconds until the caller's token expires; infinite if it does not."""
        return math.inf if who.expires_at is None else max(0.0, who.expires_at - self._ports.clock.now())

    async def _issue(self, who: Identity, **of: Any) -> TokenView:
        id = self._ports.ids.new(Prefix.TOKEN)
        return await self._ports.write(lambda conn, now: tokens.issue(conn, who, id, now, **of))


def _manages(who: Identity, scopes: Iterable[str], project: str | None) -> bool:
    return who.covers((Permission(name) for name in scopes), project)


def _refuse_share_link(who: Identity) -> None:
    if who.via is LoginMethod.SHARE:
        raise who.token_error(Permission.MANAGE, None)
