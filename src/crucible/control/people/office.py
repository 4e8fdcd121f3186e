"""What the desks share: one transaction for a wish and its record, and the projects that somebody may know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from crucible.control.db.clock import now as time_of
from crucible.control.people import audit, projects, tokens, users
from crucible.control.people.tokens import NewToken
from crucible.control.ports import Ports
from crucible.control.views import View, iso
from crucible.core.ids import Prefix
from crucible.core.people import SESSION_SECONDS, Identity, Permission, Via

T = TypeVar("T")

LONGEST_TOKEN = 10 * 365 * 86400.0


class Office:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def _write(self, fn: Callable[[Connection, float], T]) -> T:
        return await self._ports.db.write(lambda conn: fn(conn, time_of(conn, self._ports.clock.now)))

    async def _visible(self, who: Identity, project: str) -> None:
        """Raise NotFound for a project that is not there, or not his to know of."""
        if not who.may(Permission.READ, project):
            raise projects.missing(project)
        await self._ports.db.read(lambda conn: projects.need(conn, project))

    async def _session(self, who: Identity) -> View:
        return await self._issue(who, "session", Via.SESSION.value, who.scopes, SESSION_SECONDS)

    async def _issue(
        self,
        who: Identity,
        name: str,
        via: str,
        scopes: frozenset[Permission],
        seconds: float | None,
        *,
        project: str | None = None,
        job: str | None = None,
        user: str | None = None,
    ) -> View:
        secret, token = tokens.make(), self._ports.ids.new(Prefix.TOKEN)

        def add(conn: Connection, now: float) -> View:
            users.ensure_owner(conn, now)
            holder = who.user if user is None else str(users.named(conn, user)["id"])
            ends = None if seconds is None else now + min(seconds, LONGEST_TOKEN)
            new = NewToken(token, holder, name, via, scopes, ends, project, job)
            tokens.add(conn, new, secret, now)
            told = {"name": name, "scopes": sorted(scopes)}
            audit.note(conn, who, f"{via}.create", token, now, project=project, data=told)
            return {
                "id": token,
                "name": name,
                "via": via,
                "user": user or who.name,
                "scopes": sorted(scopes),
                "project": project,
                "job": job,
                "expires_at": iso(ends),
                "token": secret.reveal(),
            }

        return await self._write(add)
