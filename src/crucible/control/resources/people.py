"""Users, projects and their members. Each change is authorized, and audited in its own transaction."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from crucible.control.db.statement import Row
from crucible.control.jobs.views import iso
from crucible.control.people import audit, passwords, projects, tokens, users
from crucible.control.resources.access import Access, access_topic
from crucible.control.resources.login import Login
from crucible.control.runtime.ports import Ports
from crucible.core.errors import Conflict, Forbidden, NotFound
from crucible.core.ids import Prefix
from crucible.core.people.identity import (
    EVERY_PERMISSION,
    OWNER,
    Identity,
    LoginMethod,
    Permission,
    Role,
    validate_email,
    validate_project_name,
    validate_user_name,
)
from crucible.core.people.openid import ProviderIdentity, validate_subject
from crucible.core.requests import UserChange
from crucible.core.views.people import (
    AuditPage,
    MemberPage,
    MemberView,
    MeView,
    ProjectPage,
    ProjectView,
    UserPage,
    UserView,
)

MAX_NAMED = 5
"""Projects that an error names."""


class People:
    def __init__(self, ports: Ports, access: Access, login: Login) -> None:
        self._ports = ports
        self._access = access
        self._login = login

    # users

    async def list_users(self, who: Identity) -> UserPage:
        who.require(Permission.OPERATE)
        return UserPage(items=tuple(await self._ports.db.read(users.list_users)))

    async def add_user(
        self,
        who: Identity,
        name: str,
        *,
        admin: bool = False,
        password: str | None = None,
        email: str | None = None,
    ) -> UserView:
        who.require(Permission.OPERATE)
        validate_user_name(name)
        address = None if email is None else validate_email(email)
        kept = None if password is None else await self._hash_password(password)
        user = self._ports.ids.new(Prefix.USER)

        def add(conn: Connection, now: float) -> UserView:
            users.add(conn, user, name, now, admin=admin, password=kept, email=address)
            audit.record(conn, who, "user.create", name, now, data={"admin": admin})
            return users.user_view(users.find_or_raise(conn, name), {})

        return await self._ports.write(add)

    async def change_user(self, who: Identity, name: str, change: UserChange) -> UserView:
        """Change a user. Users may change their own password if they know it; all else is for administrators.

        `subject` links the user to an account of the OpenID provider, by the provider's own id; a new address (also
        an empty one) unlinks them. Disabling a user, a new password and either of these revokes their tokens.
        """
        own = name == who.name and who.via in (LoginMethod.OWNER, LoginMethod.SESSION, LoginMethod.BROWSER)
        if not own or any(value is not None for value in (change.admin, change.disabled, change.email, change.subject)):
            who.require(Permission.OPERATE)
        if name == OWNER.name:
            raise Conflict(
                "The owner cannot be changed.",
                why="The owner is the user who holds the state folder.",
                fix="Add a user for yourself with `crucible users add NAME`, and change that one.",
            )
        if change.password is not None and name == who.name:
            await self._login.confirm_password(name, change.old_password)
        kept = None if change.password is None else await self._hash_password(change.password)
        issuer = "" if change.subject is None else self._login.openid.issuer
        user, view = await self._ports.write(
            lambda conn, now: _change_user(conn, who, name, change, now, password=kept, issuer=issuer)
        )
        self._ports.wakeups.wake(access_topic(user))
        return view

    async def me(self, who: Identity) -> MeView:
        visible = await self._ports.db.read(lambda conn: projects.list_projects(conn, who.projects(Permission.READ)))
        return MeView(
            user=who.name,
            via=who.via.value,
            admin=who.admin,
            scopes=tuple(sorted(who.scopes)),
            projects={one.name: (Role.ADMIN if who.admin else who.roles[one.name]).value for one in visible},
            token=who.token,
            job=who.job,
        )

    # projects

    async def list_projects(self, who: Identity) -> ProjectPage:
        visible = who.projects(Permission.READ)
        return ProjectPage(items=tuple(await self._ports.db.read(lambda conn: projects.list_projects(conn, visible))))

    async def add_project(self, who: Identity, name: str, about: str = "") -> ProjectView:
        who.require(Permission.OPERATE)
        validate_project_name(name)

        def add(conn: Connection, now: float) -> ProjectView:
            projects.add(conn, name, about, now)
            audit.record(conn, who, "project.create", name, now, project=name)
            return ProjectView(name=name, about=about, created_at=iso(now))

        return await self._ports.write(add)

    async def ensure_project(self, who: Identity, name: str) -> None:
        """Create the project if it does not exist and the caller is an administrator; do nothing for others."""
        if who.may(Permission.OPERATE) and not await self._ports.db.read(lambda conn: projects.exists(conn, name)):
            with contextlib.suppress(Conflict):  # another request created it first
                await self.add_project(who, name)

    async def list_members(self, who: Identity, project: str) -> MemberPage:
        await self._access.require_project(who, project)
        return MemberPage(items=tuple(await self._ports.db.read(lambda conn: projects.list_members(conn, project))))

    async def set_member(self, who: Identity, project: str, user: str, role: Role) -> MemberView:
        await self._access.require_project(who, project, Permission.MANAGE)

        def join(conn: Connection, now: float) -> tuple[str, MemberView]:
            row = users.find_or_raise(conn, user)
            projects.set_member(conn, project, row["id"], role, now)
            audit.record(conn, who, "member.set", user, now, project=project, data={"role": role.value})
            return row["id"], MemberView(project=project, name=user, role=role.value)

        id, member = await self._ports.write(join)
        self._ports.wakeups.wake(access_topic(id))
        return member

    async def remove_member(self, who: Identity, project: str, user: str) -> None:
        await self._access.require_project(who, project, Permission.MANAGE)

        def leave(conn: Connection, now: float) -> str:
            id: str = users.find_or_raise(conn, user)["id"]
            if not projects.remove_member(conn, project, id):
                fix = f"`crucible projects members {project}` lists them."
                raise NotFound(f"{user!r} is not a member of {project!r}.", fix=fix)
            audit.record(conn, who, "member.remove", user, now, project=project)
            return id

        self._ports.wakeups.wake(access_topic(await self._ports.write(leave)))

    # the audit log

    async def audit(self, who: Identity, *, project: str | None, before: int | None, limit: int) -> AuditPage:
        """Return a page of the whole log for administrators, or of one project's for those who manage it."""
        if project is not None:
            await self._access.require_project(who, project, Permission.MANAGE)
        elif not who.may(Permission.OPERATE):
            raise _not_whole_log(who)
        chosen = None if project is None else frozenset({project})
        return await self._ports.db.read(lambda conn: audit.list_entries(conn, chosen, before, limit))

    async def _hash_password(self, password: str) -> str:
        secret = passwords.parse_password(password)
        return await self._ports.calls.run("passwords", lambda: passwords.hash_password(secret), passwords.HASH_SECONDS)


def _not_whole_log(who: Identity) -> Forbidden:
    """Return the error for the whole log; its fix names the projects that the caller manages, if any."""
    refused = who.permission_error(Permission.OPERATE, None)
    # Not limited by the token: if it does not reach the project, asking for the project will say so.
    user = replace(who, scopes=EVERY_PERMISSION)
    managed = sorted(user.projects(Permission.MANAGE) or ())
    if not managed:
        return refused
    others = f" (or {', '.join(managed[1:MAX_NAMED])})" if managed[1:] else ""
    fix = f"Name a project that you manage: crucible audit --project {managed[0]}{others}"
    return Forbidden(refused.what, why=refused.why, fix=fix, **refused.data)


def _change_user(
    conn: Connection, who: Identity, name: str, change: UserChange, now: float, *, password: str | None, issuer: str
) -> tuple[str, UserView]:
    """Change the user's row; return the id and the view. Revokes their tokens if the way they log in changed.

    `password` is the hash of a new one. `issuer` is the OpenID provider that `change.subject` belongs to. Raises
    NotFound, Conflict.
    """
    row = users.find_or_raise(conn, name)
    users.change(conn, row["id"], _changed_columns(conn, row, change, now, password, issuer))
    if _loses_sessions(row, change):
        tokens.revoke_all(conn, row["id"], now)
    audit.record(conn, who, "user.change", name, now, data=_audited(change))
    return row["id"], users.user_view(users.find_or_raise(conn, name), users.roles(conn, row["id"]))


def _changed_columns(
    conn: Connection, row: Row, change: UserChange, now: float, password: str | None, issuer: str
) -> dict[str, Any]:
    columns: dict[str, Any] = {"admin": change.admin, "password": password}
    values = {key: value for key, value in columns.items() if value is not None}
    if change.disabled is not None:
        values["disabled_at"] = now if change.disabled else None
    if change.email is not None:
        address = validate_email(change.email) if change.email else None
        users.require_email_free(conn, address, row["id"])
        values |= {"email": address, "subject": None, "issuer": None}
    if change.subject is not None:
        tie = ProviderIdentity(validate_subject(change.subject)).subject_hash(issuer)
        users.require_subject_free(conn, tie, row["id"])
        values |= {"subject": tie, "issuer": issuer}
    return values


def _loses_sessions(row: Row, change: UserChange) -> bool:
    untied = row["subject"] is not None and (change.email is not None or change.subject is not None)
    return bool(change.disabled) or change.password is not None or untied


def _audited(change: UserChange) -> dict[str, object]:
    data = change.model_dump(include={"admin", "disabled", "email", "subject"}, exclude_none=True)
    return data if change.password is None else {**data, "password": True}
