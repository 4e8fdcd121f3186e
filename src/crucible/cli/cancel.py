"""`crucible cancel`: end jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.session import Session


def cancel(
    ctx: typer.Context,
    jobs: Annotated[list[str], typer.Argument(help="Ids, short ids, endings of them, or `last`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """End jobs: TERM, then KILL after the grace. Several at once are asked about unless --yes."""
    session = Session.of(ctx)
    with session.api() as api:
        found = [api.job(ref) for ref in jobs]
        listed = ", ".join(job.called for job in found)
        if len(found) > 1 and not session.confirm(f"Cancel {len(found)} jobs: {listed}?", yes=yes):
            return 1
        for job in found:
            after = api.cancel(job.id)
            if session.out.as_json:
                session.out.json(after.as_json())
            elif job.ended:
                session.out.say(f"{job.called} had already ended: {job.status}.")
            else:
                session.out.say(f"{job.called} is being cancelled.")
    return 0
