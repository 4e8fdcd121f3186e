"""Reads code, and collects the files of a bundle."""

from __future__ import annotations

import ast
import io
import os
import tokenize
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from crucible.client.payload.base import not_found
from crucible.client.payload.git_state import list_files, list_tracked
from crucible.client.payload.secret_files import is_secret_name, looks_secret
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput
from crucible.wire.files.archive import Entry
from crucible.wire.files.bundle import DEFAULT_LIMIT, IGNORE_FILE, BundleTooLarge, collect, ignore_rules
from crucible.wire.files.paths import UnsafePath, is_inside


def read_code(path: Path, name: str) -> str:
    """Return the text of a source file. Raises BadInput if it is missing, empty or not text."""
    return decode_code(read_bytes(path, name), name)


def read_bytes(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise not_found(path, name) from None
    except OSError as error:
        fix = "Check that it is a file, and that you may read it."
        raise BadInput(f"{name} cannot be read.", why=error.strerror or str(error), fix=fix) from error


def decode_code(data: bytes, name: str) -> str:
    if not data.strip():
        raise BadInput(f"{name} is empty.", fix="Write some code into it, or check that it was saved.")
    encoding = _declared_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name} is not {encoding} text.",
            why=f"The byte at offset {error.start} (0x{data[error.start]:02x}) is not valid there.",
            fix="Save it as UTF-8.",
            offset=error.start,
        ) from error
    if "\x00" in text:
        raise BadInput(
            f"{name} is not source code.",
            why=f"There is a NUL byte at offset {data.find(0)}.",
            fix="Check that it is the right file.",
            offset=data.find(0),
        )
    return text


def syntax_note(code: str, name: str) -> tuple[str, ...]:
    """Return a note if this is not valid Python. No error: the job's Python may be another version."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        return (f"{name} may not run: {getattr(error, 'msg', error)}{line}.",)
    return ()


def gather(root: Path, only: Iterable[str] | None, limit: int) -> tuple[Entry, ...]:
    """Return the files below `root` to send, each once: all that are not ignored, or those of `only`."""
    if only is not None:
        only = list(dict.fromkeys(only))
        only = None if "." in only else list(_without_parts(only))
    try:
        return tuple(collect(root, only=only, limit_bytes=limit))
    except BundleTooLarge as error:
        raise _too_large(root, error) from error
    except UnsafePath as error:
        raise BadInput(
            f"{error.name} {error.why}.",
            why="A job gets only what is inside its folder.",
            fix=f"List it in {IGNORE_FILE}, copy it into the folder, or pass its target with --data.",
            name=error.name,
        ) from error
    except OSError as error:
        raise BadInput(
            f"{error.filename or root} cannot be read.",
            why=error.strerror or str(error),
            fix=f"Change its permissions, or list it in {IGNORE_FILE}.",
        ) from error


def _without_parts(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that are in no folder of the others: a folder is sent with all that is in it."""
    known = {name.rstrip("/") for name in names}
    for name in sorted(known):
        above = name.rpartition("/")[0]
        while above and above not in known:
            above = above.rpartition("/")[0]
        if not above:
            yield name


@dataclass(frozen=True)
class Sendable:
    """Entries without the files that look like secrets; `left_out` names those, one text for each.

    `about` describes the entries.
    """

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    about: str = ""


def without_secrets(
    root: Path, entries: Iterable[Entry], tracked: Container[str] = (), named: Container[str] = ()
) -> Sendable:
    """Return the entries but those that look like secrets, unless git tracks them or they are `named`."""
    kept, left_out = [], []
    for entry in entries:
        secret = isinstance(entry.source, Path) and entry.name not in tracked and looks_secret(root, entry.name)
        if secret and not is_named(entry.name, named):
            left_out.append(f"{entry.name} is not sent: it looks like a secret. --include {entry.name} sends it.")
        else:
            kept.append(entry)
    return Sendable(tuple(kept), tuple(left_out))


def gather_included(folder: Path, patterns: Sequence[str], limit: int) -> Sendable:
    """Return what the patterns match in `folder`, where the user stands."""
    root = folder.resolve()
    names = expand_includes(root, patterns)
    if not names:
        return Sendable(())
    return without_secrets(root, gather(root, names, limit), list_tracked(root), named_by(root, patterns))


def matches_any(root: Path, pattern: str) -> bool:
    """Return whether the pattern matches anything below `root`."""
    try:
        return not pattern.startswith("..") and bool(_glob(root, pattern))
    except (ValueError, NotImplementedError):
        return False


def named_by(root: Path, patterns: Iterable[str], start: Path | None = None) -> frozenset[str]:
    """Return the names below `root` that the patterns name themselves, not as a part of a folder or of all files."""
    plain = (pattern for pattern in patterns if os.path.normpath(pattern) != ".")
    naming = (pattern for pattern in plain if is_secret_name(pattern) or not any(mark in pattern for mark in "*?["))
    return frozenset(expand_includes(root, naming, start))


def is_named(name: str, named: Container[str]) -> bool:
    """Return whether a secret file is named, or a folder above it that is known to hold secrets."""
    parents = (str(above) for above in PurePosixPath(name).parents)
    return name in named or any(above in named and is_secret_name(above) for above in parents)


def expand_includes(root: Path, patterns: Iterable[str], start: Path | None = None) -> tuple[str, ...]:
    """Return the names below `root` that the --include patterns match. Raises BadInput for one without a match.

    Patterns are relative to `start` (default: `root`); one that matches nothing there, to `root`.
    """
    return tuple(dict.fromkeys(name for pattern in patterns for name in _matches(root, pattern, start or root)))


def _matches(root: Path, pattern: str, start: Path) -> list[str]:
    try:
        if os.path.isabs(pattern):
            pattern = os.path.relpath(pattern, start)
        found = _glob(start, pattern) or _glob(root, pattern)
    except (ValueError, NotImplementedError) as error:
        raise BadInput(
            f"--include {pattern} is not a valid pattern.", why=str(error), fix=f"Patterns are relative to {start}."
        ) from error
    if not found:
        raise BadInput(f"--include {pattern} matches nothing.", fix=f"Patterns are relative to {start}.")
    paths = [Path(os.path.normpath(path)) for path in found]
    if any(path != root and not (is_inside(root, path.parent) and path.is_relative_to(root)) for path in paths):
        raise BadInput(f"--include {pattern} leads out of {root}.", fix="Pass other files with --data.")
    if os.path.normpath(pattern) == ".":
        return _not_ignored(root, start)
    rules = ignore_rules(root)
    names = sorted(path.relative_to(root).as_posix() for path in paths)
    kept = [name for name in names if name == "." or not rules.ignores_on_the_way(name)]
    if not kept:
        raise BadInput(
            f"--include {pattern} matches only what is never sent: {names[0]}.",
            why=f"{IGNORE_FILE} lists it, or it belongs to git, a cache or a virtual environment.",
            fix=f"Remove it from {root / IGNORE_FILE}, or pass it with --data.",
        )
    return kept


def _not_ignored(root: Path, folder: Path) -> list[str]:
    """Return the files of `folder`, as names below `root`, that git does not ignore; outside git the folder itself."""
    below, names = folder.relative_to(root), list_files(folder)
    return [below.as_posix()] if names is None else [(below / name).as_posix() for name in names]


def _glob(folder: Path, pattern: str) -> list[Path]:
    """Return what the pattern matches; the folder itself for `.`. `..` may lead up to another folder of the project."""
    up, rest = folder, PurePath(pattern)
    while rest.parts[:1] == ("..",):
        up, rest = up.parent, PurePath(*rest.parts[1:])
    return list(up.glob(str(rest))) if rest.parts else [up]


def _too_large(root: Path, error: BundleTooLarge) -> BadInput:
    biggest = "\n".join(f"    {format_memory(size):>10}  {name}" for name, size in error.biggest)
    over = f"{error.files:,} files" if error.files else format_memory(error.size)
    allowed = "" if error.files else f"; at most {_limit(error.limit)} may be sent"
    return BadInput(
        f"The code in {root} is {over}{allowed}.",
        why=f"The biggest files:\n{biggest}",
        fix=f"List what is not code in {root / IGNORE_FILE}, and pass data with --data.",
        biggest=[[name, size] for name, size in error.biggest],
    )


def _limit(size: int) -> str:
    """Format a limit; the default is documented in decimal units, as 500 MB."""
    return f"500 MB ({format_memory(size)})" if size == DEFAULT_LIMIT else format_memory(size)


def _declared_encoding(data: bytes) -> str:
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        return "utf-8"
