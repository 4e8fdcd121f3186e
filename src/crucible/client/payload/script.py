"""A script, code given as text, or a shell command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import (
    Sendable,
    decode_code,
    expand_includes,
    gather,
    gather_included,
    named_by,
    read_code,
    syntax_note,
    without_secrets,
)
from crucible.client.payload.git_state import git_state
from crucible.client.payload.imports import local_imports
from crucible.client.payload.named import Script, describe_names, find_needed
from crucible.client.payload.project import Project, find_project
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, Source, SourceKind
from crucible.wire.files.archive import Entry
from crucible.wire.files.bundle import IGNORE_FILE

CODE_FILE = "main.py"
SHELL = "/bin/sh"


def from_script(label: str, code_source: CodeSource) -> Payload:
    """Send the project that the script belongs to; of one that is too large the script and what it needs.

    It starts where the user stands, if that is inside the project, else in the folder of the script.
    """
    refuse_entry("A script", code_source)
    path = (code_source.folder / Path(label).expanduser()).resolve()
    text = read_code(path, label)
    if code_source.in_place:
        return _in_place(path, label, text, code_source)
    project = find_project(path.parent, code_source.host.environ, code_source.limit)
    whole = project is not None and not project.too_large
    root = project.root if project is not None else path.parent
    entry = path.relative_to(root).as_posix()
    start = start_folder(code_source.folder, path.parent, root)
    choice = choose_environment(code_source.python, Code(root, entry, text, whole=whole), code_source.host)
    script = Script(root, path, text, code_source.command_arguments, start, code_source.folder.resolve())
    collected = _gather_script(project, script, code_source)
    if all(item.name != entry for item in collected.entries):
        raise BadInput(f"{label} is listed in {IGNORE_FILE}.", fix="Remove it there.")
    state = git_state(root) if whole else git_state(root, [item.name for item in collected.entries])
    return Payload(
        command=(PYTHON, os.path.relpath(path, start), *code_source.command_arguments),
        environment=choice.environment,
        source=state.source(SourceKind.SCRIPT, path),
        entries=collected.entries,
        workdir=start.relative_to(root).as_posix() if start != root else None,
        notes=(*choice.notes, *syntax_note(text, label)),
        sent=collected.about,
        left_out=(*_too_large_note(project), *collected.left_out),
    )


def start_folder(folder: Path, beside: Path, root: Path) -> Path:
    """Return where a program of `root` starts: in `folder`, where the user stands, if that is inside, else `beside`."""
    standing = folder.resolve()
    return standing if standing.is_relative_to(root) else beside


def _in_place(path: Path, label: str, text: str, code_source: CodeSource) -> Payload:
    root, name = path.parent, path.name
    choice = choose_environment(code_source.python, Code(root, name, text), code_source.host)
    names = (name, *local_imports(root, text), *expand_includes(root, code_source.include))
    return Payload(
        command=(PYTHON, name, *code_source.command_arguments),
        environment=choice.environment,
        source=git_state(root, tuple(dict.fromkeys(names))).source(SourceKind.SCRIPT, path),
        in_place=str(root),
        notes=(*choice.notes, *syntax_note(text, label)),
    )


def _gather_script(project: Project | None, script: Script, code_source: CodeSource) -> Sendable:
    """Return the project's files, the script, what it imports from its folder or names, and what --include adds."""
    root, path = script.root, script.path
    of_project = project.files if project is not None else ()
    beside = path.parent.relative_to(root)
    imports = ((beside / name).as_posix() for name in local_imports(path.parent, script.text))
    parts = [path.relative_to(root).as_posix(), *_missing_imports(root, imports, of_project)]
    included = expand_includes(root, code_source.include, script.start)
    size = sum((root / name).lstat().st_size for name in of_project)
    known = frozenset((*of_project, *parts, *included))
    needed = find_needed(script, known, code_source.limit - size, shared=project is None)
    entries = gather(root, (*of_project, *parts, *included, *needed.names), code_source.limit)
    named = named_by(root, code_source.include, script.start) | needed.by_user
    sendable = without_secrets(root, entries, frozenset(of_project), named)
    names = {item.name for item in sendable.entries}
    notes = project.left_out.items() if project is not None else ()
    left_out = (*(text for name, text in notes if name not in names), *sendable.left_out, *needed.left_out)
    about = _describe(project, root)
    if needed.described:
        about += f", and what it names: {describe_names(list(needed.described))}"
    return Sendable(sendable.entries, tuple(dict.fromkeys(left_out)), about)


def _missing_imports(root: Path, imports: Iterable[str], sent: Sequence[str]) -> Iterator[str]:
    """Yield what the project's files lack of the imported modules, as git may ignore generated ones.

    Of a package that is sent in part these are its modules, else the whole folder.
    """
    known = frozenset(sent)
    folders = {name.rpartition("/")[0] for name in sent}
    for name in imports:
        if (root / name).is_dir() and any(f"{folder}/".startswith(f"{name}/") for folder in folders):
            modules = (file.relative_to(root).as_posix() for file in sorted((root / name).rglob("*.py")))
            yield from (module for module in modules if module not in known)
        elif name not in known:
            yield name


def _describe(project: Project | None, root: Path) -> str:
    if project is None or project.too_large:
        return f"the script, what it imports and what it opens by name, from {root}"
    return f"the {project.kind} {root}"


def _too_large_note(project: Project | None) -> Iterator[str]:
    if project is not None and project.too_large:
        yield (
            f"The {project.kind} {project.root} is not sent as a whole: it has {project.too_large}. The script, what it"
            " imports and what it opens by name are sent; --include sends more."
        )


def from_code(code: str, code_source: CodeSource, *, label: str = "The code") -> Payload:
    """Send the code as `main.py`, so that a traceback shows its lines; --include is relative to the current folder."""
    refuse_entry(label, code_source)
    text = decode_code(code.encode("utf-8", errors="surrogateescape"), label)
    choice = choose_environment(code_source.python, Code(text=text), code_source.host)
    added = gather_included(code_source.folder, code_source.include, code_source.limit)
    if any(entry.name == CODE_FILE for entry in added.entries):
        raise BadInput(f"--include brings a {CODE_FILE}, and the code is sent under that name.", fix="Rename the file.")
    entries = None if code_source.in_place else (Entry.of_bytes(CODE_FILE, text.encode()), *added.entries)
    start = (PYTHON, "-c", text) if code_source.in_place else (PYTHON, CODE_FILE)
    return Payload(
        command=(*start, *code_source.command_arguments),
        environment=choice.environment,
        source=Source(kind=SourceKind.CODE),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, label)),
        left_out=added.left_out if entries else (),
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
    added = gather_included(code_source.folder, code_source.include, code_source.limit)
    entries = None if code_source.in_place or not code_source.include else added.entries
    state = git_state(code_source.folder) if code_source.in_place or entries else None
    return Payload(
        command=(SHELL, "-c", command, *(("sh", *arguments) if arguments else ())),
        environment=choice.environment,
        source=state.source(SourceKind.SHELL, code_source.folder) if state else Source(kind=SourceKind.SHELL),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=choice.notes,
        left_out=added.left_out if entries else (),
    )
