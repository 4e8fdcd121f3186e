"""A directory: the files that are not ignored, and the one to start."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath

from crucible.client.payload.base import CodeSource, Payload
from crucible.client.payload.files import (
    Sendable,
    expand_includes,
    gather,
    gather_included,
    matches_any,
    named_by,
    read_code,
    syntax_note,
    without_secrets,
)
from crucible.client.payload.git_state import git_state, list_files, list_tracked
from crucible.client.payload.suggestions import nearest_file
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, Source, SourceKind
from crucible.wire.files.ignore import BUILT_IN, IgnoreRules
from crucible.wire.files.paths import UnsafePath, safe_join

ENTRIES = ("main.py", "train.py", "__main__.py")
_LISTED = 10
_MAX_SCANNED = 20_000
"""Files of a huge folder that are checked for being special."""
_MAX_SPECIAL = 3


def from_directory(label: str, code_source: CodeSource) -> Payload:
    root = (code_source.folder / Path(label).expanduser()).resolve()
    return from_root(root, label, git_state(root).source(SourceKind.DIRECTORY, root), code_source)


def from_root(root: Path, label: str, source: Source, code_source: CodeSource) -> Payload:
    """Return the payload of a local folder, such as a clone."""
    entry = find_entry(root, _named_folder(root, label), code_source.entry)
    text = read_code(root / entry, str(PurePath(label) / entry) if source.path else entry)
    choice = choose_environment(code_source.python, Code(root, entry, text, whole=True), code_source.host)
    collected = None if code_source.in_place else _gather_directory(root, code_source)
    if collected is not None and all(item.name != entry for item in collected.entries):
        raise BadInput(f"The entry {entry} is ignored by .gitignore or .crucibleignore.", fix="Remove it there.")
    return Payload(
        command=(PYTHON, entry, *code_source.command_arguments),
        environment=choice.environment,
        source=source,
        entries=collected.entries if collected is not None else None,
        in_place=str(root) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, entry), *(_special_note(root) if collected is not None else ())),
        sent=collected.about if collected is not None else "",
        left_out=collected.left_out if collected is not None else (),
    )


def _gather_directory(root: Path, code_source: CodeSource) -> Sendable:
    """Return the files of the folder that are not ignored, and what --include adds, without secrets.

    A pattern is relative to the folder; what matches nothing in a copy, such as a clone, to where the user stands.
    """
    is_copy = code_source.scratch is not None and root.is_relative_to(code_source.scratch.resolve())
    inside = [pattern for pattern in code_source.include if not is_copy or matches_any(root, pattern)]
    local = [pattern for pattern in code_source.include if pattern not in inside]
    files = list_files(root)
    included = expand_includes(root, inside)
    only = None if files is None else (*files, *included)
    entries = gather(root, only, code_source.limit)
    found = without_secrets(root, entries, list_tracked(root), named_by(root, inside))
    added = gather_included(code_source.folder, local, code_source.limit)
    merged = {entry.name: entry for entry in (*added.entries, *found.entries)}
    about = "" if is_copy else f"the {'folder' if files is None else 'git work tree'} {root}"
    return Sendable(tuple(merged.values()), (*found.left_out, *added.left_out), about)


def _named_folder(root: Path, label: str) -> str:
    """Return the name of the folder for errors; `.` and `..` as a full path."""
    return str(root) if PurePath(label).name in ("", "..") else label


def find_entry(root: Path, label: str, named: str | None) -> str:
    """Return the file to run, relative to `root`: the named one, else one with a usual name, else the only one."""
    scripts = sorted(path.name for path in root.glob("*.py") if path.is_file())
    if named is not None:
        return _named(root, label, named, scripts)
    usual = next((name for name in ENTRIES if name in scripts), None)
    if usual is not None:
        return usual
    if len(scripts) == 1:
        return scripts[0]
    candidates = scripts or _below(root)
    hint = f"Candidates: {', '.join(candidates[:_LISTED])}." if candidates else "There is no Python file in it."
    raise BadInput(
        f"It is not clear which file of {label} to run.",
        why=f"There is no {', '.join(ENTRIES)}. {hint}",
        fix="Name it with --entry FILE." if candidates else "Add a main.py, or use --shell for another command.",
        candidates=candidates,
    )


def _named(root: Path, label: str, named: str, scripts: list[str]) -> str:
    try:
        path = safe_join(root, named.removeprefix("./"))
    except UnsafePath as error:
        raise BadInput(f"--entry {named} {error.why}.", fix=f"Name a file inside {label}.") from error
    if not path.is_file():
        near = nearest_file(named, scripts)
        raise BadInput(
            f"There is no {named} in {label}.",
            fix=f"Did you mean {near!r}?" if near else _known(scripts),
            candidates=scripts,
        )
    return path.relative_to(root).as_posix()


def _known(scripts: list[str]) -> str:
    return f"It has {', '.join(scripts[:_LISTED])}." if scripts else "It is relative to that folder; check --entry."


def _below(root: Path) -> list[str]:
    found = (path.relative_to(root) for path in root.glob("*/*.py") if not path.parent.name.startswith("."))
    return sorted(path.as_posix() for path in found)


def _special_note(root: Path) -> tuple[str, ...]:
    """Return a note naming pipes, sockets and devices below `root`; of a huge folder only a part is checked."""
    special = list(_special_files(root))
    if not special:
        return ()
    more = f" and {len(special) - _MAX_SPECIAL} more" if len(special) > _MAX_SPECIAL else ""
    verb = "is" if len(special) == 1 else "are"
    return (f"{', '.join(special[:_MAX_SPECIAL])}{more} {verb} left out: pipes, sockets and devices cannot be sent.",)


def _special_files(root: Path) -> Iterator[str]:
    rules = IgnoreRules(BUILT_IN)
    seen = 0
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if not rules.ignores((below / name).as_posix(), is_folder=True)]
        for name in files:
            seen += 1
            if seen > _MAX_SCANNED:
                return
            if _is_special_files(os.path.join(folder, name)):
                yield (below / name).as_posix()


def _is_special_files(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))
