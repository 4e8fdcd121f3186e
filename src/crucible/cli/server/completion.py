"""`crucible completion`: the lines that let a shell complete commands and options."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.core.errors import UnknownName

FILES = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/crucible.fish",
}
"""Where each shell reads them when it starts."""


def completion(
    ctx: typer.Context,
    shell: Annotated[
        str | None, typer.Argument(metavar="[SHELL]", help=f"One of {', '.join(FILES)}; your own unless given.")
    ] = None,
) -> None:
    """Print the lines that let a shell complete commands and options."""
    from typer._completion_shared import get_completion_script

    session = Session.of(ctx)
    named = shell or PurePath(session.environ.get("SHELL", "")).name
    if named not in FILES:
        raise UnknownName("shell", named, tuple(FILES))
    script = get_completion_script(prog_name="crucible", complete_var="_CRUCIBLE_COMPLETE", shell=named)
    if session.out.as_json:
        session.out.json({"shell": named, "file": FILES[named], "script": script})
        return
    session.out.data(script)
    session.out.say(f"Keep it: crucible completion {named} >> {FILES[named]}, and open a new shell.")
