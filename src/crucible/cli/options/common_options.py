"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.client.api import Api
from crucible.core.people.identity import DEFAULT_PROJECT

JOB_HELP = "Job ID, short ID, the end of an ID, a name, or `last`."

Job = Annotated[str, typer.Argument(metavar="ID", help=JOB_HELP)]
"""One job, looked up with `crucible.client.sdk.job_lookup.find_job`."""

Jobs = Annotated[list[str], typer.Argument(metavar="ID…", help="Job IDs, short IDs, ends of IDs, names, or `last`.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


Project = Annotated[
    str | None,
    typer.Option(
        "--project", metavar="PROJECT", help="Project (default: the setting `project`, or your only project)."
    ),
]


def resolve_project(cli: CommandContext, api: Api, named: str | None) -> str:
    """Return the named project, else the setting's, else the user's only one, else the default, as for jobs."""
    chosen = named or cli.settings.project.value
    if chosen is not None:
        return chosen
    me = api.people.me()
    own = sorted(name for name, role in me.projects.items() if role != "viewer")
    return own[0] if not me.admin and len(own) == 1 else DEFAULT_PROJECT
