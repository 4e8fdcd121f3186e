"""Read and write the rows of projects and their members. The callers check permissions."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.core.errors import Conflict, NotFound
from crucible.core.people.identity import DEFAULT_PROJECT, Role
from crucible.core.views.people import MemberView, ProjectView

_c, _m = t.projects.c, t.members.c
_BY_NAME = Statement(select(t.projects).where(_c.name == bindparam("name")))
_ADD = Statement(insert_row(t.projects, ["name", "about", "created_at"]))
_MEMBER = (_m.project == bindparam("in_project"), _m.user == bindparam("of_user"))
_CHANGE = Statement(update(t.members).where(*_MEMBER).values(role=bindparam("new_role")))
_JOIN = Statement(insert_row(t.members, ["project", "user", "role", "since"]))
_LEAVE = Statement(delete(t.members).where(*_MEMBER))


def add(conn: Connection, name: str, about: str, now: float) -> None:
    """Add a project. Raises Conflict if the name is taken."""
    if exists(conn, name):
        raise Conflict(f"The project {name!r} exists already.", fix="Choose another name.", project=name)
    _ADD.run(conn, name=name, about=about, created_at=now)


def exists(conn: Connection, name: str) -> bool:
    return name == DEFAULT_PROJECT or _BY_NAME.first(conn, name=name) is not None


def ensure(conn: Connection, name: str, now: float) -> None:
    """Add the project if it does not exist."""
    if not exists(conn, name):
        _ADD.run(conn, name=name, about="", created_at=now)


def require(conn: Connection, name: str) -> None:
    """Raise NotFound if the project does not exist."""
    if not exists(conn, name):
        raise not_found(name)


def not_found(name: str) -> NotFound:
    """Return the error for a project that does not exist or that the caller may not see."""
    return NotFound(f"There is no project {name!r}.", fix="`crucible projects` lists yours.", project=name)


def set_member(conn: Connection, project: str, user: str, role: Role, now: float) -> None:
    """Add the user to the project with this role, or change their role."""
    # The default project has no row before it has members.
    if project == DEFAULT_PROJECT and _BY_NAME.first(conn, name=project) is None:
        _ADD.run(conn, name=project, about="", created_at=now)
    if _CHANGE.run(conn, in_project=project, of_user=user, new_role=role.value) == 0:
        _JOIN.run(conn, project=project, user=user, role=role.value, since=now)


def remove_member(conn: Connection, project: str, user: str) -> bool:
    """Remove the user from the project. Return whether they were a member."""
    return _LEAVE.run(conn, in_project=project, of_user=user) > 0


def list_projects(conn: Connection, visible: frozenset[str] | None) -> list[ProjectView]:
    """Return the visible projects (None: all), sorted by name. The default project always exists."""
    query = (
        select(_c.name, _c.about, _c.created_at, func.count(_m.user).label("members"))
        .join(t.members, _m.project == _c.name, isouter=True)
        .group_by(_c.name, _c.about, _c.created_at)
    )
    views = {DEFAULT_PROJECT: ProjectView(name=DEFAULT_PROJECT)}
    for row in conn.execute(query).mappings():
        views[row["name"]] = ProjectView(
            name=row["name"], about=row["about"], members=row["members"], created_at=iso(row["created_at"])
        )
    return [views[name] for name in sorted(views) if visible is None or name in visible]


def list_members(conn: Connection, project: str) -> list[MemberView]:
    query = (
        select(t.users.c.name, _m.role, _m.since)
        .join(t.users, t.users.c.id == _m.user)
        .where(_m.project == project)
        .order_by(t.users.c.name)
    )
    rows = conn.execute(query).mappings()
    return [MemberView(name=row["name"], role=row["role"], since=iso(row["since"])) for row in rows]
