"""Arguments of the Python client that are texts, names or numbers: checked, with what is wrong told by field."""

from __future__ import annotations

import math

from crucible.core.errors import BadInput


def invalid_value(field: str, value: object, rule: str) -> BadInput:
    """The error for a value that breaks the rule `field rule`."""
    shown = ascii(value)
    return BadInput(
        f"{field} {rule}.",
        why=f"It is {shown if len(shown) <= 100 else type(value).__name__}.",
        fix=f"Give {field} another value, or leave it out.",
        field=field,
    )


def check_number(
    field: str, value: object, least: float, most: float, *, above: bool = False, whole: bool = False
) -> None:
    """Raise BadInput unless it is None or a number within these bounds."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        raise invalid_value(field, value, f"is a {'whole ' if whole else ''}number")
    if value < least or (above and value <= least):
        raise invalid_value(field, value, f"must be {'more than' if above else 'at least'} {least:g}")
    if value > most:
        raise invalid_value(field, value, f"must be at most {most:g}")


def check_text(field: str, value: object) -> str:
    """The text; raises BadInput for another type, and for what no file name or request can hold."""
    if not isinstance(value, str):
        raise invalid_value(field, value, f"is a text, not {type(value).__name__}")
    if "\x00" in value:
        raise invalid_value(field, value, "must not hold a NUL character")
    try:
        value.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        raise invalid_value(field, value, "holds half a character, which UTF-8 cannot write") from None
    return value


def check_names(field: str, said: object) -> tuple[str, ...] | None:
    """Names in a list, each once; None is none said. One name may stand for a list of one."""
    if said is None:
        return None
    items = [said] if isinstance(said, str) else said
    if not isinstance(items, list | tuple | set | frozenset):
        raise invalid_value(field, said, "is a list of names")
    names = tuple(dict.fromkeys(check_text(field, getattr(item, "value", item)).strip() for item in items))
    if not names or not all(names):
        raise BadInput(f"{field} names nothing.", fix="Name some, or None for all.", field=field)
    return names
