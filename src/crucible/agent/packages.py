"""What is installed beside a Python, by looking at its folders: part of the record that repeats a job.

Nothing is started for it, so it costs a job no time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOST = 2000
_TOOLS = frozenset({"pip", "setuptools", "wheel", "uv"})
_INFO = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[0-9][A-Za-z0-9.!_]*)(?:\+[A-Za-z0-9._]+)?\.dist-info"
)
_FOLDER = re.compile(r"python(?P<version>3\.[0-9]+)")


def installed(python: str) -> list[str]:
    """`name==version` of every package of this Python's own environment, sorted.

    A build's own label (`+cpu`) is left out: an index may have the same version under another one.
    """
    return sorted(_pins(python))[:MOST]


def version_of(python: str) -> str | None:
    """`3.11`, where the environment's folders say so."""
    folder = next(_libraries(python), None)
    found = _FOLDER.fullmatch(folder.name) if folder is not None else None
    return found["version"] if found else None


def _pins(python: str) -> Iterator[str]:
    for library in _libraries(python):
        for name in _names(library / "site-packages"):
            found = _INFO.fullmatch(name)
            if found and found["name"].lower() not in _TOOLS:
                yield f"{found['name'].replace('_', '-').lower()}=={found['version']}"


def _libraries(python: str) -> Iterator[Path]:
    """The folders `lib/python3.X` beside it, without following links: a venv's `python` leads out of it."""
    lib = Path(os.path.abspath(python)).parent.parent / "lib"
    for name in sorted(_names(lib)):
        if _FOLDER.fullmatch(name):
            yield lib / name


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
