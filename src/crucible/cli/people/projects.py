"""`crucible projects`: projects and their members."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.core.errors import UnknownName
from crucible.core.people.identity import Role
from crucible.core.views.people import MemberView, ProjectView

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Project name.")]
User = Annotated[str, typer.Argument(metavar="USER", help="User name.")]


def projects(ctx: typer.Context) -> None:
    """List the projects you can see."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        views = api.people.projects()
    heads = ("PROJECT", "MEMBERS", "ABOUT", "SINCE")
    cli.out.print_list(views, ListFormat(heads, _row, lambda project: project.name))


def add(
    ctx: typer.Context,
    name: Project,
    about: Annotated[str, typer.Option("--about", help="One-line description.")] = "",
) -> None:
    """Add a project. Jobs run in it with --project, or with the setting `project`."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        made = api.people.add_project(name, about)
    if cli.out.as_json:
        cli.out.json(made.as_json())
    cli.out.say(f"Added project {name}. Add a user to it: crucible projects grant {name} USER member")


def members(ctx: typer.Context, name: Project) -> None:
    """List a project's members and their roles."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        views = api.people.members(name)
    nobody = f"{name} has no members; only administrators can use it."
    heads = ("USER", "ROLE", "SINCE")
    cli.out.print_list(views, ListFormat(heads, _member, lambda member: member.name, nobody))


def grant(
    ctx: typer.Context,
    name: Project,
    user: User,
    role: Annotated[str, typer.Argument(metavar="ROLE", help=f"Role: {', '.join(Role)}.")],
) -> None:
    """Give a user a role in a project, or change their role."""
    cli = CommandContext.from_typer(ctx)
    if role not in set(Role):
        raise UnknownName("role", role, [item.value for item in Role])
    with cli.api() as api:
        made = api.people.set_member(name, user, role)
    if cli.out.as_json:
        cli.out.json(made.as_json())
    cli.out.say(f"{user} is {'an' if role == Role.ADMIN else 'a'} {role} of {name}.")


def remove(ctx: typer.Context, name: Project, user: User, yes: Yes = False) -> int:
    """Remove a user from a project. Their jobs stay in it. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    if not cli.confirm(f"Remove {user} from {name}?", yes=yes):
        return 1
    with cli.api() as api:
        api.people.remove_member(name, user)
    if cli.out.as_json:
        cli.out.json({"project": name, "name": user, "removed": True})
    cli.out.say(f"{user} is no longer a member of {name}.")
    return 0


def _row(project: ProjectView) -> tuple[str, ...]:
    since = format_ago(project.created_at) if project.created_at else ""
    return project.name, str(project.members), project.about, since


def _member(member: MemberView) -> tuple[str, ...]:
    return member.name, member.role, format_ago(member.since)
