"""Reads code, and collects the files of a bundle."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

from crucible.client.payload.base import not_found
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput
from crucible.wire.files.archive import Entry
from crucible.wire.files.bundle import DEFAULT_LIMIT, IGNORE_FILE, BundleTooLarge, collect
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
    """Return the files below `root` to send: all that are not ignored, or those of `only`."""
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


def expand_includes(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names below `root` that the --include patterns match. Raises BadInput for one without a match."""
    return tuple(dict.fromkeys(name for pattern in patterns for name in _matches(root, pattern)))


def _matches(root: Path, pattern: str) -> list[str]:
    try:
        paths = [path for path in root.glob(pattern) if path != root]
    except (ValueError, NotImplementedError) as error:
        raise BadInput(
            f"--include {pattern} is not a valid pattern.", why=str(error), fix=f"Patterns are relative to {root}."
        ) from error
    if not paths:
        raise BadInput(f"--include {pattern} matches nothing.", fix=f"Patterns are relative to {root}.")
    if any(not is_inside(root, path.parent) or ".." in path.parts for path in paths):
        raise BadInput(f"--include {pattern} leads out of {root}.", fix="Pass other files with --data.")
    return sorted(path.relative_to(root).as_posix() for path in paths)


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
