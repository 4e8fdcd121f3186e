"""The desk where people are looked after: every wish is checked against who asks, done and written down at once."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from crucible.control.people import audit, passwords, projects, tokens, users
from crucible.control.people.changes import UserChange
from crucible.control.people.door import Door
from crucible.control.people.keys import Keys
from crucible.control.people.office import Office
from crucible.control.ports import Ports
from crucible.control.views import View, iso
from crucible.core.errors import Conflict, Forbidden, NotFound
from crucible.core.ids import Prefix
from crucible.core.people import (
    EVERY_PERMISSION,
    OWNER,
    Identity,
    Permission,
    Role,
    Via,
    checked_email,
    checked_project,
    checked_user,
)

if TYPE_CHECKING:
    from crucible.control.people.openid import OpenIdLogin

MOST_NAMED = 5
"""Projects that an error names."""


class People(Office):
    """`openid`: for people whom an OpenID provider vouches for; None where there is no provider."""

    def __init__(self, ports: Ports, openid: OpenIdLogin | None = None) -> None:
        super().__init__(ports)
        self.keys = Keys(ports)
        self.door = Door(ports, openid)

    async def identify(self, token: str) -> Identity | None:
        """Whom a token stands for; None if it is good for nothing."""
        now = self._ports.clock.now()
        found = await self._ports.db.read(lambda conn: tokens.identified(conn, token, now))
        if found is None:
            return None
        if found.stale:
            used = str(found.who.token)
            await self._write(lambda conn, now: tokens.used(conn, used, now))
        return found.who

    # users

    async def users(self, who: Identity) -> list[View]:
        who.need(Permission.OPERATE)
        return await self._ports.db.read(users.listed)

    async def add_user(
        self,
        who: Identity,
        name: str,
        *,
        admin: bool = False,
        password: str | None = None,
        email: str | None = None,
    ) -> View:
        who.need(Permission.OPERATE)
        checked_user(name)
        address = None if email is None else checked_email(email)
        kept = None if password is None else await self._hashed(password)
        user = self._ports.ids.new(Prefix.USER)

        def add(conn: Connection, now: float) -> View:
            users.add(conn, user, name, now, admin=admin, password=kept, email=address)
            audit.note(conn, who, "user.create", name, now, data={"admin": admin})
            return users.view(users.named(conn, name), {})

        return await self._write(add)

    async def change_user(
        self,
        who: Identity,
        name: str,
        *,
        admin: bool | None = None,
        disabled: bool | None = None,
        password: str | None = None,
        old_password: str | None = None,
        email: str | None = None,
        subject: str | None = None,
    ) -> View:
        """A user may change his own password, if he knows it; all else is for administrators.

        A disabled user's tokens end. `subject` ties him to a person of the OpenID provider by the provider's own name
        for that person; a new address (none at all: an empty one) undoes what ties him. What changes who he is ends
        his tokens too.
        """
        own = name == who.name and who.via in (Via.OWNER, Via.SESSION)
        if not own or any(wish is not None for wish in (admin, disabled, email, subject)):
            who.need(Permission.OPERATE)
        if name == OWNER.name:
            raise Conflict(
                "The owner cannot be changed.",
                why="He is whoever holds the state folder.",
                fix="Make a user of your own with `crucible users add NAME`, and change that one.",
            )
        if password is not None and name == who.name:
            await self.door.confirm(name, old_password)
        kept = None if password is None else await self._hashed(password)
        issuer = "" if subject is None else self.door.openid.issuer
        change = UserChange(admin, disabled, kept, email, subject, issuer)
        return await self._write(lambda conn, now: change.make(conn, who, name, now))

    async def me(self, who: Identity) -> View:
        visible = await self._ports.db.read(lambda conn: projects.listed(conn, who.projects(Permission.READ)))
        roles = {
            item["name"]: Role.ADMIN.value if who.admin else who.roles[str(item["name"])].value for item in visible
        }
        return {
            "user": who.name,
            "via": who.via.value,
            "admin": who.admin,
            "scopes": sorted(who.scopes),
            "projects": roles,
            "token": who.token,
            "job": who.job,
        }

    # projects

    async def projects(self, who: Identity) -> list[View]:
        return await self._ports.db.read(lambda conn: projects.listed(conn, who.projects(Permission.READ)))

    async def add_project(self, who: Identity, name: str, about: str = "") -> View:
        who.need(Permission.OPERATE)
        checked_project(name)

        def add(conn: Connection, now: float) -> View:
            projects.add(conn, name, about, now)
            audit.note(conn, who, "project.create", name, now, project=name)
            return {"name": name, "about": about, "created_at": iso(now), "members": 0}

        return await self._write(add)

    async def ensure_project(self, who: Identity, name: str) -> None:
        """An administrator's projects are made as they are named."""
        if who.may(Permission.OPERATE) and not await self._ports.db.read(lambda conn: projects.exists(conn, name)):
            with contextlib.suppress(Conflict):  # somebody was faster
                await self.add_project(who, name)

    async def members(self, who: Identity, project: str) -> list[View]:
        await self._visible(who, project)
        return await self._ports.db.read(lambda conn: projects.members(conn, project))

    async def set_member(self, who: Identity, project: str, user: str, role: Role) -> View:
        await self._visible(who, project)
        who.need(Permission.MANAGE, project)

        def join(conn: Connection, now: float) -> View:
            row = users.named(conn, user)
            projects.join(conn, project, row["id"], role, now)
            audit.note(conn, who, "member.set", user, now, project=project, data={"role": role.value})
            return {"project": project, "name": user, "role": role.value}

        return await self._write(join)

    async def remove_member(self, who: Identity, project: str, user: str) -> None:
        await self._visible(who, project)
        who.need(Permission.MANAGE, project)

        def leave(conn: Connection, now: float) -> None:
            if not projects.leave(conn, project, users.named(conn, user)["id"]):
                raise NotFound(f"{user!r} is no member of {project!r}.", fix=f"`crucible projects members {project}`.")
            audit.note(conn, who, "member.remove", user, now, project=project)

        await self._write(leave)

    # the record

    async def audit(self, who: Identity, *, project: str | None, before: int | None, limit: int) -> View:
        """All of it for administrators; a project's for those who manage it."""
        if project is None:
            if not who.may(Permission.OPERATE):
                raise _not_all(who)
        else:
            await self._visible(who, project)
            who.need(Permission.MANAGE, project)
        chosen = None if project is None else frozenset({project})
        return await self._ports.db.read(lambda conn: audit.listed(conn, chosen, before, limit))

    async def _hashed(self, password: str) -> str:
        secret = passwords.checked(password)
        return await self._ports.calls.run("passwords", lambda: passwords.hashed(secret), passwords.HASH_SECONDS)


def _not_all(who: Identity) -> Forbidden:
    """The whole record is an administrator's; whoever manages a project is told of the part that is his to see."""
    refused = who.refusal(Permission.OPERATE, None)
    himself = replace(who, scopes=EVERY_PERMISSION)  # whether his token reaches that far is said of the project then
    managed = sorted(himself.projects(Permission.MANAGE) or ())
    if not managed:
        return refused
    others = f" (or {', '.join(managed[1:MOST_NAMED])})" if managed[1:] else ""
    fix = f"Name a project that you manage: crucible audit --project {managed[0]}{others}"
    return Forbidden(refused.what, why=refused.why, fix=fix, **refused.data)
