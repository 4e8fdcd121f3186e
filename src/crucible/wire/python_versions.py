"""Match a Python against a version such as `3.12`, or a specifier such as `>=3.9,<3.13`."""

from __future__ import annotations

import re

_CLAUSE = re.compile(r"(===|==|!=|~=|<=|>=|<|>)?\s*v?(\d+(?:\.\d+)*)(\.\*)?[a-z0-9.+-]*", re.IGNORECASE)
_LEADING = 6
Release = tuple[int, ...]


class BadVersion(ValueError):
    """The text is neither a version nor a specifier."""


def version_matches(version: str, wanted: str) -> bool:
    """Return whether `version` (numbers only, `3.11.4`) matches; every clause must hold. Raises BadVersion.

    A plain version matches all that start with it. Suffixes such as `rc1` are ignored, because an interpreter is only
    asked for its numbers.
    """
    clauses = [clause.strip() for clause in wanted.split(",") if clause.strip()]
    if not clauses:
        raise BadVersion(f"{wanted!r} is not a Python version")
    # A list, so that every clause is parsed: a generator would skip a bad clause behind one that does not match.
    matches = [_holds(_release(version), clause) for clause in clauses]
    return all(matches)


def _holds(version: Release, clause: str) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        raise BadVersion(f"{clause!r} is not a Python version; write it as 3.12 or >=3.10,<3.13")
    operator, numbers, star = found.group(1), _release(found.group(2)), found.group(3)
    has_prefix = version[: len(numbers)] == numbers
    if operator is None or (star and operator in ("==", "===")):
        return has_prefix
    if star and operator == "!=":
        return not has_prefix
    if operator == "~=":
        return _padded(version) >= _padded(numbers) and version[: len(numbers) - 1] == numbers[:-1]
    return _compare(_padded(version), operator, _padded(numbers))


def _compare(version: Release, operator: str, numbers: Release) -> bool:
    less, same = version < numbers, version == numbers
    return {
        "==": same,
        "===": same,
        "!=": not same,
        "<": less,
        "<=": less or same,
        ">": not less and not same,
        ">=": not less,
    }[operator]


def _release(text: str) -> Release:
    return tuple(int(part) for part in text.split("."))


def _padded(release: Release) -> Release:
    return (release + (0,) * _LEADING)[:_LEADING]
