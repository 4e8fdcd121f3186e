"""A shell command. Files come along only when --include asks for them (`--include .`: the current folder)."""

from __future__ import annotations

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import expand_includes, gather
from crucible.client.payload.git_state import git_state, list_files
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import Source, SourceKind
from crucible.wire.files.archive import Entry

SHELL = "/bin/sh"


def from_shell(command: str, code_source: CodeSource) -> Payload:
    """Runs `/bin/sh -c command`; arguments after `--` are $1, $2 and so on."""
    refuse_entry("A shell command", code_source)
    if not command.strip():
        raise BadInput("The shell command is empty.", fix="Write it like --shell 'make train'.")
    choice = choose_environment(code_source.python, Code(), code_source.host)
    entries = None if code_source.in_place else _entries(code_source)
    state = git_state(code_source.folder) if code_source.in_place or entries else None
    return Payload(
        command=(
            SHELL,
            "-c",
            command,
            *(("sh", *code_source.command_arguments) if code_source.command_arguments else ()),
        ),
        environment=choice.environment,
        source=state.source(SourceKind.SHELL, code_source.folder) if state else Source(kind=SourceKind.SHELL),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=choice.notes,
    )


def _entries(code_source: CodeSource) -> tuple[Entry, ...] | None:
    patterns = [pattern.rstrip("/") or pattern for pattern in code_source.include]
    if "." in patterns:
        return gather(code_source.folder, list_files(code_source.folder), code_source.limit)
    names = expand_includes(code_source.folder, patterns)
    return gather(code_source.folder, names, code_source.limit) if names else None
