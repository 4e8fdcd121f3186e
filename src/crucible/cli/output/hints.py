"""What the last lines of a failed job's output suggest to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from crucible.client.payload import Payload

_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)
_DEEPEST = 8


def hints(tail: Iterable[str], payload: Payload | None = None, folder: Path | None = None) -> tuple[str, ...]:
    """Advice, if the output shows something known. `payload` was submitted from `folder`."""
    text = "\n".join(tail)
    return (*_module_hint(text, payload, folder), *_input_hint(text))


def _module_hint(text: str, payload: Payload | None, folder: Path | None) -> Iterator[str]:
    found = _MODULE.findall(text)
    if not found:
        return
    name = found[-1].partition(".")[0]
    root = _root_with(name, payload)
    if root is not None and payload is not None and payload.source.path:
        entry = Path(payload.source.path).relative_to(root).as_posix()
        yield (
            f"{name} is in {root}, which was not sent. Send it, and let Python look there: "
            f"crucible run {_shown(root, folder)} --entry {entry} --env PYTHONPATH=."
        )
    else:
        yield (
            f"The job's Python has no module {name}. Name the package that brings it in a `# /// script` block of"
            " the script or in requirements.txt beside it, or choose a Python that has it with --python."
        )


def _root_with(name: str, payload: Payload | None) -> Path | None:
    """The nearest folder above a submitted script that holds this module."""
    if payload is None or not payload.source.path or not payload.source.path.endswith(".py"):
        return None
    script = Path(payload.source.path)
    for folder in script.parents[1:_DEEPEST]:
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            return folder
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def _shown(root: Path, folder: Path | None) -> str:
    return str(root) if folder is None else os.path.relpath(root, folder)


def _input_hint(text: str) -> Iterator[str]:
    if _INPUT.search(text):
        yield "A job has no standard input: pass what it asks for as an argument (after --), a variable or a file."
