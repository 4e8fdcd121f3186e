"""`crucible templates`: ready workloads to run or to copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.templates import Template, copy_to, get
from crucible.templates import templates as known

Name = Annotated[str, typer.Argument(metavar="NAME", help="See `crucible templates`.")]


def templates(ctx: typer.Context) -> None:
    """List ready workloads. `crucible run --template NAME` runs one, `crucible templates copy NAME` makes it yours."""
    session, found = Session.of(ctx), known()
    if session.out.as_json:
        session.out.json({"items": [as_json(item) for item in found]})
    elif session.out.quiet:
        for item in found:
            session.out.data(item.name)
    else:
        rows = [(item.name, ", ".join(preset.name for preset in item.presets), item.description) for item in found]
        session.out.table(("TEMPLATE", "PRESETS", "WHAT"), rows)
        session.out.say(f"Run one: crucible run --template {found[0].name}" if found else "There are none.")


def show(ctx: typer.Context, name: Name) -> None:
    """Show one: its sizes, files and requirements."""
    session, found = Session.of(ctx), get(name)
    if session.out.as_json:
        session.out.json(as_json(found))
        return
    session.out.fields(
        [
            ("Template", found.name),
            ("Title", found.title),
            ("What", found.description),
            ("Command", " ".join(found.command)),
            ("Needs", ", ".join(found.requirements)),
            ("Presets", "\n".join(f"{preset.name}: {preset.description}" for preset in found.presets)),
            ("Files", ", ".join(found.files)),
        ]
    )
    session.out.say(f"Run it: crucible run --template {name} · Make it yours: crucible templates copy {name}")


def copy(
    ctx: typer.Context,
    name: Name,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder to copy to; one of its name unless given.")
    ] = None,
) -> None:
    """Copy one into a folder, to own and change. Nothing is overwritten."""
    session = Session.of(ctx)
    into = Path(name) if folder is None else folder
    written = copy_to(name, into)
    if session.out.as_json:
        session.out.json({"folder": str(into.absolute()), "files": [str(path) for path in written]})
    else:
        for path in written:
            session.out.data(str(path))
        session.out.say(f"{len(written)} files in {into}. Run it: crucible run {into}")


def as_json(template: Template) -> dict[str, object]:
    return {**asdict(template), "folder": str(template.folder)}
