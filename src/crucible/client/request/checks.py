"""Checks of arguments of the Python client: text, names, numbers."""

from __future__ import annotations

import math

from crucible.core.errors import BadInput


def invalid_value(field: str, value: object, rule: str) -> BadInput:
    """Return the error for a value that breaks the rule `field rule`."""
    written = ascii(value)
    return BadInput(
        f"{field} {rule}.",
        why=f"It is {written if len(written) <= 100 else type(value).__name__}.",
        fix=f"Give {field} another value, or leave it out.",
        field=field,
    )


def check_number(
    field: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: bool = False,
    whole: bool = False,
) -> None:
    """Raise BadInput if it is neither None nor a finite number within these bounds; `above` excludes the lower one."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        raise invalid_value(field, value, f"must be a {'whole ' if whole else ''}number")
    if value < least or (above and value <= least):
        raise invalid_value(field, value, f"must be {'more than' if above else 'at least'} {least:g}")
    if value > most:
        raise invalid_value(field, value, f"must be at most {most:g}")


def check_text(field: str, value: object) -> str:
    """Return the text. Raises BadInput for another type, and for text that cannot be part of a file name or request."""
    if not isinstance(value, str):
        raise invalid_value(field, value, f"must be text, not {type(value).__name__}")
    if "\x00" in value:
        raise invalid_value(field, value, "must not contain a NUL character")
    try:
        value.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        raise invalid_value(
            field, value, "contains half a character (a lone surrogate), which is not valid UTF-8"
        ) from None
    return value


def check_names(field: str, value: object) -> tuple[str, ...] | None:
    """Return the names of a list, each once, or None for None. A single name stands for a list of one."""
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise invalid_value(field, value, "must be a list of names")
    # An enum stands for its value: backends may be named by members of ExecutionBackend.
    names = tuple(dict.fromkeys(check_text(field, getattr(item, "value", item)).strip() for item in items))
    if not names or not all(names):
        raise BadInput(f"{field} names nothing.", fix="Give at least one name, or None for all.", field=field)
    return names
