"""What every kind of payload becomes: files to send, a command, a Python, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crucible.client.payload.near import nearest_file
from crucible.client.pythons import Surroundings
from crucible.core.errors import BadInput
from crucible.core.spec import EnvironmentSpec, Source
from crucible.wire.archive import Entry
from crucible.wire.limits import DEFAULT_LIMIT


@dataclass(frozen=True)
class Request:
    """How the user wants code to be taken up. `scratch` is a folder for clones, kept until all is packed."""

    around: Surroundings
    scratch: Path
    arguments: tuple[str, ...] = ()
    python: str | None = None
    include: tuple[str, ...] = ()
    entry: str | None = None
    ref: str | None = None
    in_place: bool = False
    limit: int = DEFAULT_LIMIT

    @property
    def folder(self) -> Path:
        return self.around.folder


@dataclass(frozen=True)
class Payload:
    """Code ready to be sent: `entries` (None: nothing to send), or a folder to run in on this computer.

    `notes` are for the user: what was left out, passed over or looks wrong.
    """

    command: tuple[str, ...]
    environment: EnvironmentSpec
    source: Source
    entries: tuple[Entry, ...] | None = None
    in_place: str | None = None
    notes: tuple[str, ...] = ()


def refuse_entry(what: str, request: Request) -> None:
    """Raise BadInput where an entry was named and there is nothing to choose one from."""
    if request.entry is not None:
        raise BadInput(
            f"{what} has no entry {request.entry!r}.",
            why="It runs as a whole; an entry is the file of a directory or repository to begin with.",
            fix="Leave out --entry (entry), or name the directory; files that it needs come with --include.",
            field="entry",
        )


def missing(path: Path, shown: str) -> BadInput:
    """The error for a path that is not there, with the nearest name that is."""
    near = nearest_file(path.name, _names(path.parent))
    hint = f"Did you mean {str(Path(shown).parent / near)!r}?" if near else "Check the path."
    return BadInput(f"{shown} does not exist.", why=f"It was looked for at {path}.", fix=hint, meant=near)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(item.name for item in folder.iterdir())
    except OSError:
        return []
