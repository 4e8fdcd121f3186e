"""`crucible prune`: remove what is older than it needs to be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.session import Session
from crucible.core.compute.resources import format_memory, parse_duration
from crucible.core.errors import BadInput
from crucible.core.views.server import PruneView

_SHOWN = 20


def prune(
    ctx: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Ended so long ago, such as 7d; 30 days unless given."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed, and why.")] = False,
    yes: Yes = False,
) -> int:
    """Remove what is older than it needs to be kept, and say why each thing goes. Asks unless --yes."""
    session = Session.of(ctx)
    age = _age(older_than)
    with session.api() as api:
        found = None if yes and not dry_run else api.maintenance.prune(older_than=age, dry_run=True)
        if found is not None and (dry_run or not found.is_any):
            _tell(session, found)
            return 0
        if found is not None:
            question = f"Remove {_sum(found)}?"
            if not session.confirm(question, yes=False, why="\n".join(_lines(found))):
                return 1
        _tell(session, api.maintenance.prune(older_than=age))
    return 0


def _age(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except BadInput as error:
        raise BadInput(f"--older-than: {error.what}", fix=error.fix, field="--older-than") from error


def _tell(session: Session, found: PruneView) -> None:
    if session.out.as_json:
        session.out.json(found.as_json())
        return
    for line in _lines(found):
        session.out.data(line)
    if not found.is_any:
        session.out.say("There is nothing to remove.")
    else:
        session.out.say(f"{'Would remove' if found.dry_run else 'Removed'} {_sum(found)}.")
    for item in found.failed[:_SHOWN]:
        session.out.say(f"{item.key} is still in the store and is tried again: {item.why}")


def _lines(found: PruneView) -> Iterator[str]:
    for item in found.items[:_SHOWN]:
        of = f" of {item.job}" if item.job else ""
        yield f"{item.what}{of}, {format_memory(item.bytes)}: {item.why}"
    if len(found.items) > _SHOWN:
        yield f"and {len(found.items) - _SHOWN} more (--json lists all)"


def _sum(found: PruneView) -> str:
    counts = {
        "job": found.jobs,
        "checkpoint": found.checkpoints,
        "artifact": found.artifacts,
        "log": found.logs,
        "bundle": found.bundles,
    }
    parts = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(parts) or f'{len(found.items)} things'} ({format_memory(found.bytes)})"
