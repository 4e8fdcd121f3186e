"""Names that somebody may have meant: near enough that it is a slip of the hand."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of a known thing that is most alike."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def nearest_file(name: str, known: Iterable[str]) -> str | None:
    """The file whose name differs by a slip: a letter or two, or only what follows the dot."""
    wanted = PurePath(name).stem.lower()
    slips = [(_slips(wanted, PurePath(other).stem.lower()), other) for other in known]
    few, near = min(slips, default=(len(wanted), ""))
    return near if few <= (2 if len(wanted) > 4 else 1) and few < len(wanted) else None


def _slips(one: str, other: str) -> int:
    """Letters to change, add, drop or swap to get from one to the other."""
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
