"""Finds the name that a misspelt one probably stands for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, if one is similar enough."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def nearest_file(name: str, known: Iterable[str]) -> str | None:
    """Return the file whose name differs by a letter or two, or only by its suffix."""
    stem = PurePath(name).stem.lower()
    distances = [(_edit_distance(stem, PurePath(other).stem.lower()), other) for other in known]
    distance, near = min(distances, default=(len(stem), ""))
    return near if distance <= (2 if len(stem) > 4 else 1) and distance < len(stem) else None


def _edit_distance(one: str, other: str) -> int:
    """Return how many letters to change, add, drop or swap to turn one name into the other (Damerau-Levenshtein)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            best = min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, earlier[j - 2] + 1)
            row.append(best)
    return row[-1]
