"""Hints for a failed job, from the last lines of its output."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from crucible.client.payload import Payload

_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)
_DEEPEST = 8


def find_hints(tail: Iterable[str], payload: Payload | None = None, folder: Path | None = None) -> tuple[str, ...]:
    """Return hints if the output shows a known problem. `payload` was submitted from `folder`."""
    text = "\n".join(tail)
    return (*_module_hint(text, payload, folder), *_input_hint(text))


def _module_hint(text: str, payload: Payload | None, folder: Path | None) -> Iterator[str]:
    modules = _MODULE.findall(text)
    if not modules:
        return
    name = modules[-1].partition(".")[0]
    root = _root_with(name, payload)
    if root is not None and payload is not None and payload.source.path:
        entry = Path(payload.source.path).relative_to(root).as_posix()
        yield (
            f"{name} is in {root}, which was not sent. Send it and add it to the Python path: "
            f"crucible run {_display_path(root, folder)} --entry {entry} --env PYTHONPATH=."
        )
    else:
        yield (
            f"The job's Python has no module {name}. Add its package to a `# /// script` block in the script or to"
            " requirements.txt next to it, or choose a Python that has it with --python."
        )


def _root_with(name: str, payload: Payload | None) -> Path | None:
    """Return the nearest folder above the submitted script that contains the module, or None."""
    if payload is None or not payload.source.path or not payload.source.path.endswith(".py"):
        return None
    script = Path(payload.source.path)
    for folder in script.parents[1:_DEEPEST]:
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            return folder
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def _display_path(root: Path, folder: Path | None) -> str:
    return str(root) if folder is None else os.path.relpath(root, folder)


def _input_hint(text: str) -> Iterator[str]:
    if _INPUT.search(text):
        yield "A job has no standard input. Pass the input as an argument (after --), a variable or a file."
