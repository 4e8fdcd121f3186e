"""A shell command. Files come along only when --include asks for them (`--include .`: the current folder)."""

from __future__ import annotations

from crucible.client.payload.base import Payload, Request, refuse_entry
from crucible.client.payload.files import gather, included
from crucible.client.payload.repository import git_state, listed_files
from crucible.client.pythons import Code, choose_python
from crucible.core.errors import BadInput
from crucible.core.spec import Source, SourceKind
from crucible.wire.archive import Entry

SHELL = "/bin/sh"


def from_shell(command: str, request: Request) -> Payload:
    """Runs `/bin/sh -c command`; arguments after `--` are $1, $2 and so on."""
    refuse_entry("A shell command", request)
    if not command.strip():
        raise BadInput("The shell command is empty.", fix="Write it like --shell 'make train'.")
    choice = choose_python(request.python, Code(), request.around)
    entries = None if request.in_place else _entries(request)
    state = git_state(request.folder) if request.in_place or entries else None
    return Payload(
        command=(SHELL, "-c", command, *(("sh", *request.arguments) if request.arguments else ())),
        environment=choice.environment,
        source=state.source(SourceKind.SHELL, request.folder) if state else Source(kind=SourceKind.SHELL),
        entries=entries,
        in_place=str(request.folder) if request.in_place else None,
        notes=choice.notes,
    )


def _entries(request: Request) -> tuple[Entry, ...] | None:
    patterns = [pattern.rstrip("/") or pattern for pattern in request.include]
    if "." in patterns:
        return gather(request.folder, listed_files(request.folder), request.limit)
    names = included(request.folder, patterns)
    return gather(request.folder, names, request.limit) if names else None
