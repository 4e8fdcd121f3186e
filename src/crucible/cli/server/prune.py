"""`crucible prune`: delete old jobs, checkpoints, artifacts and logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.core.compute.resources import format_memory, parse_duration
from crucible.core.errors import BadInput
from crucible.core.views.server import PruneView

_SHOWN = 20


def prune(
    ctx: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Age since a job's end, such as 7d (default: 30d)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed, and why.")] = False,
    yes: Yes = False,
) -> int:
    """Delete old jobs, checkpoints, artifacts and logs, each with the reason. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    age = _parse_age(older_than)
    with cli.api() as api:
        preview = None if yes and not dry_run else api.maintenance.prune(older_than=age, dry_run=True)
        if preview is not None and (dry_run or not preview.is_any):
            _print_result(cli, preview)
            return 0
        if preview is not None:
            question = f"Remove {_summary(preview)}?"
            if not cli.confirm(question, yes=False, why="\n".join(_lines(preview))):
                return 1
        _print_result(cli, api.maintenance.prune(older_than=age))
    return 0


def _parse_age(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except BadInput as error:
        raise BadInput(f"--older-than: {error.what}", fix=error.fix, field="--older-than") from error


def _print_result(cli: CommandContext, pruned: PruneView) -> None:
    if cli.out.as_json:
        cli.out.json(pruned.as_json())
        return
    for line in _lines(pruned):
        cli.out.data(line)
    if not pruned.is_any:
        cli.out.say("There is nothing to remove.")
    else:
        cli.out.say(f"{'Would remove' if pruned.dry_run else 'Removed'} {_summary(pruned)}.")
    for item in pruned.failed[:_SHOWN]:
        cli.out.say(f"{item.key} could not be removed and will be retried: {item.why}")


def _lines(pruned: PruneView) -> Iterator[str]:
    for item in pruned.items[:_SHOWN]:
        of = f" of {item.job}" if item.job else ""
        yield f"{item.what}{of}, {format_memory(item.bytes)}: {item.why}"
    if len(pruned.items) > _SHOWN:
        yield f"and {len(pruned.items) - _SHOWN} more (--json lists all)"


def _summary(pruned: PruneView) -> str:
    counts = {
        "job": pruned.jobs,
        "checkpoint": pruned.checkpoints,
        "artifact": pruned.artifacts,
        "log": pruned.logs,
        "bundle": pruned.bundles,
    }
    parts = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(parts) or f'{len(pruned.items)} things'} ({format_memory(pruned.bytes)})"
