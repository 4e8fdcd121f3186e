"""Render tables and links for a page in docs/."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def line(cells: Iterable[str]) -> str:
    """Return a row of a table, with line breaks and bars in cells escaped."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"


def head(cells: tuple[str, ...]) -> tuple[str, str]:
    return line(cells), f"|{'---|' * len(cells)}"


def links(tests: Iterable[str]) -> str:
    """Return links to `tests/some/test_file.py` or `tests/some/test_file.py::test_name`, one per file."""
    named: dict[str, list[str]] = {}
    for test in tests:
        path, _, name = test.partition("::")
        named.setdefault(path, []).extend([f"`{name}`"] if name else [])
    return ", ".join(f"[{Path(path).name}](../{path}) {', '.join(names)}".strip() for path, names in named.items())
