"""Versions of Python, and the ranges of them that `requires-python` names (`>=3.11,<3.14`)."""

from __future__ import annotations

import re
from collections.abc import Callable

Version = tuple[int, ...]

_CLAUSE = re.compile(r"\s*(~=|===?|!=|<=?|>=?)\s*v?([0-9]+(?:\.[0-9]+)*)(\.\*)?[a-z0-9.+-]*\s*", re.IGNORECASE)

_COMPARED: dict[str, Callable[[Version, Version], bool]] = {
    ">=": lambda have, wanted: have >= wanted,
    "<=": lambda have, wanted: have <= wanted,
    ">": lambda have, wanted: have > wanted,
    "<": lambda have, wanted: have < wanted,
}


def satisfies(version: Version, wanted: str) -> bool:
    """Whether a version lies in the range; a part that is not understood excludes nothing."""
    return all(_holds(version, clause) for clause in wanted.split(",") if clause.strip())


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def _holds(version: Version, clause: str) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        return True
    sign, wanted = found[1], tuple(map(int, found[2].split(".")))
    if sign in _COMPARED:
        return _COMPARED[sign](_padded(version), _padded(wanted))
    if sign == "~=":
        return _padded(version) >= _padded(wanted) and version[: len(wanted) - 1] == wanted[:-1]
    same = version[: len(wanted)] == wanted if found[3] else _padded(version) == _padded(wanted)
    return not same if sign == "!=" else same


def _padded(version: Version) -> Version:
    return (*version, *(0,) * (4 - len(version)))
