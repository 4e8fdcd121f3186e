"""`crucible projects`: what belongs together, and who belongs to it."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.core.errors import UnknownName
from crucible.core.people.identity import Role
from crucible.core.views.people import MemberView, ProjectView

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name.")]
User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]


def projects(ctx: typer.Context) -> None:
    """List the projects that you may see."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.people.projects()
    heads = ("PROJECT", "MEMBERS", "ABOUT", "SINCE")
    session.out.listing(found, Listing(heads, _row, lambda project: project.name))


def add(
    ctx: typer.Context,
    name: Project,
    about: Annotated[str, typer.Option("--about", help="What it is, in a line.")] = "",
) -> None:
    """Add a project. Jobs go there with --project, or the setting `project`."""
    session = Session.of(ctx)
    with session.api() as api:
        made = api.people.add_project(name, about)
    if session.out.as_json:
        session.out.json(made.as_json())
    session.out.say(f"{name} is a project. Let somebody in: crucible projects grant {name} USER member")


def members(ctx: typer.Context, name: Project) -> None:
    """List who belongs to a project, and in which role."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.people.members(name)
    nobody = f"{name} has no members; administrators may use it all the same."
    heads = ("USER", "ROLE", "SINCE")
    session.out.listing(found, Listing(heads, _member, lambda member: member.name, nobody))


def grant(
    ctx: typer.Context,
    name: Project,
    user: User,
    role: Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(Role)}.")],
) -> None:
    """Make a user a member with this role, or change his role."""
    session = Session.of(ctx)
    if role not in set(Role):
        raise UnknownName("role", role, [item.value for item in Role])
    with session.api() as api:
        made = api.people.set_member(name, user, role)
    if session.out.as_json:
        session.out.json(made.as_json())
    session.out.say(f"{user} is {'an' if role == Role.ADMIN else 'a'} {role} of {name}.")


def remove(ctx: typer.Context, name: Project, user: User, yes: Yes = False) -> int:
    """End a user's membership. His jobs stay with the project. Asks unless --yes."""
    session = Session.of(ctx)
    if not session.confirm(f"End {user}'s membership of {name}?", yes=yes):
        return 1
    with session.api() as api:
        api.people.remove_member(name, user)
    if session.out.as_json:
        session.out.json({"project": name, "name": user, "removed": True})
    session.out.say(f"{user} is no member of {name} any more.")
    return 0


def _row(project: ProjectView) -> tuple[str, ...]:
    since = ago_words(project.created_at) if project.created_at else ""
    return project.name, str(project.members), project.about, since


def _member(member: MemberView) -> tuple[str, ...]:
    return member.name, member.role, ago_words(member.since)
