"""`crucible templates`: ready-made workloads to run or copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.templates import Template, copy_to, get
from crucible.templates import templates as known

Name = Annotated[str, typer.Argument(metavar="NAME", help="Template name; see `crucible templates`.")]


def templates(ctx: typer.Context) -> None:
    """List ready-made workloads. `crucible run --template NAME` runs one, `crucible templates copy NAME` copies it."""
    cli, items = CommandContext.from_typer(ctx), known()
    if cli.out.as_json:
        cli.out.json({"items": [as_json(item) for item in items]})
    elif cli.out.quiet:
        for item in items:
            cli.out.data(item.name)
    else:
        rows = [(item.name, ", ".join(preset.name for preset in item.presets), item.description) for item in items]
        cli.out.table(("TEMPLATE", "PRESETS", "WHAT"), rows)
        cli.out.say(f"Run one: crucible run --template {items[0].name}" if items else "There are no templates.")


def show(ctx: typer.Context, name: Name) -> None:
    """Show a template's presets, files and requirements."""
    cli, template = CommandContext.from_typer(ctx), get(name)
    if cli.out.as_json:
        cli.out.json(as_json(template))
        return
    cli.out.fields(
        [
            ("Template", template.name),
            ("Title", template.title),
            ("What", template.description),
            ("Command", " ".join(template.command)),
            ("Needs", ", ".join(template.requirements)),
            ("Presets", [f"{preset.name}: {preset.description}" for preset in template.presets]),
            ("Files", ", ".join(template.files)),
        ]
    )
    cli.out.say(f"Run it: crucible run --template {name} · Copy it: crucible templates copy {name}")


def copy(
    ctx: typer.Context,
    name: Name,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder to copy to (default: the template's name).")
    ] = None,
) -> None:
    """Copy a template into a folder. Nothing is overwritten."""
    cli = CommandContext.from_typer(ctx)
    into = Path(name) if folder is None else folder
    written = copy_to(name, into)
    if cli.out.as_json:
        cli.out.json({"folder": str(into.absolute()), "files": [str(path) for path in written]})
    else:
        for path in written:
            cli.out.data(str(path))
        cli.out.say(f"{len(written)} files in {into}. Run it: crucible run {into}")


def as_json(template: Template) -> dict[str, object]:
    return {**asdict(template), "folder": str(template.folder)}
