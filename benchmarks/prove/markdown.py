"""Tables and links of a page in docs/."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def line(cells: Iterable[str]) -> str:
    """A line of a table; no cell can break out of it."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"


def head(cells: tuple[str, ...]) -> tuple[str, str]:
    return line(cells), f"|{'---|' * len(cells)}"


def links(tests: Iterable[str]) -> str:
    """`tests/some/test_file.py` or `tests/some/test_file.py::test_name`; a file is linked once."""
    named: dict[str, list[str]] = {}
    for test in tests:
        path, _, name = test.partition("::")
        named.setdefault(path, []).extend([f"`{name}`"] if name else [])
    return ", ".join(f"[{Path(path).name}](../{path}) {', '.join(names)}".strip() for path, names in named.items())
