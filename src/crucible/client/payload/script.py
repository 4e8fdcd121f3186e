"""A script, code given as text, or a shell command."""

from __future__ import annotations

from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import decode_code, expand_includes, gather, read_code, syntax_note
from crucible.client.payload.git_state import git_state, list_files
from crucible.client.payload.imports import local_imports
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, Source, SourceKind
from crucible.wire.files.archive import Entry

CODE_FILE = "main.py"
SHELL = "/bin/sh"


def from_script(label: str, code_source: CodeSource) -> Payload:
    """Send the file, the modules of its folder that it imports, and what --include adds."""
    refuse_entry("A script", code_source)
    path = (code_source.folder / Path(label).expanduser()).resolve()
    text = read_code(path, label)
    root, name = path.parent, path.name
    choice = choose_environment(code_source.python, Code(root, name, text), code_source.host)
    names = tuple(dict.fromkeys((name, *local_imports(root, text), *expand_includes(root, code_source.include))))
    state = git_state(root, names)
    entries = None if code_source.in_place else gather(root, names, code_source.limit)
    if entries is not None and all(entry.name != name for entry in entries):
        raise BadInput(f"{label} is listed in .crucibleignore.", fix="Remove it there.")
    return Payload(
        command=(PYTHON, name, *code_source.command_arguments),
        environment=choice.environment,
        source=state.source(SourceKind.SCRIPT, path),
        entries=entries,
        in_place=str(root) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, label)),
    )


def from_code(code: str, code_source: CodeSource, *, label: str = "The code") -> Payload:
    """Send the code as `main.py`, so that a traceback shows its lines; --include is relative to the current folder."""
    refuse_entry(label, code_source)
    text = decode_code(code.encode("utf-8", errors="surrogateescape"), label)
    choice = choose_environment(code_source.python, Code(text=text), code_source.host)
    names = expand_includes(code_source.folder, code_source.include)
    if CODE_FILE in names:
        raise BadInput(f"--include brings a {CODE_FILE}, and the code is sent under that name.", fix="Rename the file.")
    entries = None
    if not code_source.in_place:
        more = gather(code_source.folder, names, code_source.limit) if names else ()
        entries = (Entry.of_bytes(CODE_FILE, text.encode()), *more)
    start = (PYTHON, "-c", text) if code_source.in_place else (PYTHON, CODE_FILE)
    return Payload(
        command=(*start, *code_source.command_arguments),
        environment=choice.environment,
        source=Source(kind=SourceKind.CODE),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, label)),
    )


def from_shell(command: str, code_source: CodeSource) -> Payload:
    """Run `/bin/sh -c command`; arguments after `--` are $1, $2 and so on.

    Files are sent only if --include asks for them (`--include .`: the current folder).
    """
    refuse_entry("A shell command", code_source)
    if not command.strip():
        raise BadInput("The shell command is empty.", fix="Write it like --shell 'make train'.")
    arguments = code_source.command_arguments
    choice = choose_environment(code_source.python, Code(), code_source.host)
    entries = None if code_source.in_place else _shell_entries(code_source)
    state = git_state(code_source.folder) if code_source.in_place or entries else None
    return Payload(
        command=(SHELL, "-c", command, *(("sh", *arguments) if arguments else ())),
        environment=choice.environment,
        source=state.source(SourceKind.SHELL, code_source.folder) if state else Source(kind=SourceKind.SHELL),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=choice.notes,
    )


def _shell_entries(code_source: CodeSource) -> tuple[Entry, ...] | None:
    patterns = [pattern.rstrip("/") or pattern for pattern in code_source.include]
    if "." in patterns:
        return gather(code_source.folder, list_files(code_source.folder), code_source.limit)
    names = expand_includes(code_source.folder, patterns)
    return gather(code_source.folder, names, code_source.limit) if names else None
