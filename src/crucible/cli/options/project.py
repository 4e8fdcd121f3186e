"""Whose something is: the option `--project`, and the project that is meant without it."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.core.people.identity import DEFAULT_PROJECT

Project = Annotated[
    str | None, typer.Option("--project", metavar="PROJECT", help="Whose it is; your only project unless given.")
]


def chosen_project(session: Session, api: Api, named: str | None) -> str:
    """Named here or by the setting, else the only one that is his, as for jobs."""
    chosen = named or session.settings.project.value
    if chosen is not None:
        return chosen
    me = api.people.me()
    own = sorted(name for name, role in me.projects.items() if role != "viewer")
    return own[0] if not me.admin and len(own) == 1 else DEFAULT_PROJECT
