"""Ignore patterns as in .gitignore."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

BUILT_IN = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "*.pyc",
    ".venv",
    "venv",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".ipynb_checkpoints",
    ".DS_Store",
    "Icon\r",
    ".crucible",
    "crucible-outputs",
)


@dataclass(frozen=True)
class IgnorePattern:
    """One pattern. `parts` are matched against the parts of a path; `**` stands for any number of them."""

    parts: tuple[str, ...]
    folders_only: bool
    keeps: bool

    def matches(self, path: tuple[str, ...], is_folder: bool) -> bool:
        return (is_folder or not self.folders_only) and _match(self.parts, path)


class IgnoreRules:
    """Rules in their order; the last one that matches a path decides.

    `*`, `?` and `[...]` match within one part of the path and `**` spans parts; a pattern with a `/` before its end is
    relative to the top folder; one that ends in `/` matches only folders; `!` includes a path again, though not from a
    folder that is itself ignored. Matching is case-sensitive.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = tuple(rule for rule in map(_parse, patterns) if rule)

    def ignores(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether this path itself is ignored. A walk asks for each folder on the way down."""
        parts = tuple(path.split("/"))
        for rule in reversed(self._rules):
            if rule.matches(parts, is_folder):
                return not rule.keeps
        return False

    def ignores_on_the_way(self, path: str) -> bool:
        """Return whether a file or any folder above it is ignored: for paths that were not found by walking."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self.ignores(folder, is_folder=True) for folder in above) or self.ignores(path)


def _parse(line: str) -> IgnorePattern | None:
    text = line.rstrip(" \t\n")
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps or text.startswith(("\\!", "\\#")) else text
    folders_only = text.endswith("/")
    bound = "/" in text.rstrip("/")
    parts = [part for part in text.split("/") if part]
    return IgnorePattern(tuple(parts if bound else ["**", *parts]), folders_only, keeps) if parts else None


def _match(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Return whether the path matches. Tracks all positions in the pattern at once, so that no pattern is slow."""
    positions = _skip_stars(pattern, {0})
    for part in path:
        reached = set()
        for index in positions:
            if index < len(pattern) and pattern[index] == "**":
                reached.update({index, len(pattern)} if index == len(pattern) - 1 else {index})
            elif index < len(pattern) and _compiled(pattern[index]).match(part):
                reached.add(index + 1)
        positions = _skip_stars(pattern, reached)
    return len(pattern) in positions


def _skip_stars(pattern: tuple[str, ...], positions: set[int]) -> set[int]:
    """Add the positions that are reachable when `**` matches nothing; a trailing one must match something."""
    for index in sorted(positions):
        while index < len(pattern) - 1 and pattern[index] == "**":
            index += 1
            positions.add(index)
    return positions


@lru_cache(maxsize=512)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))
