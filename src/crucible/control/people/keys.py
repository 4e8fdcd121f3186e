"""Keys: the tokens of users, and links that show one job to whoever has them."""

from __future__ import annotations

from sqlalchemy import Connection

from crucible.control.people import audit, tokens
from crucible.control.people.office import Office
from crucible.control.views import View
from crucible.core.people import Identity, Permission, Via


class Keys(Office):
    async def listed(self, who: Identity, *, everyones: bool = False) -> list[View]:
        self._not_shared(who)
        if everyones:
            who.need(Permission.OPERATE)
        now = self._ports.clock.now()
        user = None if everyones else who.user
        return await self._ports.db.read(lambda conn: tokens.listed(conn, user, now))

    async def make(
        self,
        who: Identity,
        name: str,
        *,
        scopes: frozenset[Permission],
        seconds: float | None,
        project: str | None = None,
        user: str | None = None,
    ) -> View:
        """The token itself is in the answer, as `token`, and nowhere else. It never reaches further than who asks."""
        self._not_shared(who)
        if user not in (None, who.name):
            who.need(Permission.OPERATE)
        wider = scopes - who.scopes
        if wider or who.project not in (None, project):
            raise who.beyond_token(next(iter(sorted(wider)), Permission.READ), project)
        if project is not None:
            await self._visible(who, project)
        return await self._issue(who, name, Via.TOKEN.value, scopes, seconds, project=project, user=user)

    async def share(self, who: Identity, job: str, project: str, name: str, seconds: float) -> View:
        """A token that shows one job and nothing else; `job` was found for `who`, who may change it."""
        who.need(Permission.WRITE, project)
        read = frozenset({Permission.READ})
        return await self._issue(who, name, Via.SHARE.value, read, seconds, project=project, job=job)

    async def revoke(self, who: Identity, ref: str) -> View:
        """Again is harmless. Administrators may end anybody's."""
        self._not_shared(who)

        def end(conn: Connection, now: float) -> View:
            row = tokens.of(conn, ref)
            if row["user"] != who.user and not who.may(Permission.OPERATE):
                raise tokens.missing(ref)
            if tokens.revoke(conn, row["id"], now):
                audit.note(conn, who, "token.revoke", row["id"], now, project=row["project"])
            return {"id": row["id"], "name": row["name"], "state": "revoked"}

        return await self._write(end)

    def _not_shared(self, who: Identity) -> None:
        if who.via is Via.SHARE:
            raise who.beyond_token(Permission.MANAGE, None)
