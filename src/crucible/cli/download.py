"""`crucible download`: fetch what a job left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.client.downloads import choose
from crucible.client.downloads import download as fetch
from crucible.core.resources import format_memory


def download(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="Id, short id, an ending of it, or `last`.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Artifacts, folders or patterns; all unless given.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Folder to write to; ./<job> unless given.")] = None,
) -> None:
    """Fetch a job's artifacts. An interrupted download goes on where it stopped; each file is checked."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.job(job)
        into = (to or Path(found.called)).absolute()
        chosen = choose(api.artifacts(found.id), paths or ())
        if not chosen:
            session.out.say(f"{found.called} has no artifacts. A job leaves them in $CRUCIBLE_OUTPUT_DIR.")
        for artifact in chosen:
            path = fetch(api, found.id, artifact, into)
            if session.out.as_json:
                session.out.json({**artifact.as_json(), "file": str(path)})
            else:
                session.out.data(str(path))
        if chosen:
            size = format_memory(sum(item.size for item in chosen))
            session.out.say(f"{len(chosen)} file{'s' if len(chosen) > 1 else ''}, {size}, in {into}")
