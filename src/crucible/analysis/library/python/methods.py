"""Methods of known strings, lists and dicts."""

from __future__ import annotations

from typing import Any

from crucible.analysis.interpreter.branches import perhaps
from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.library.call import Asked
from crucible.analysis.values.operators import MAX_LENGTH
from crucible.analysis.values.values import UNKNOWN, Name, Value

_TEXT = frozenset(
    [
        "upper",
        "lower",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "startswith",
        "endswith",
        "replace",
        "partition",
        "rpartition",
        "removeprefix",
        "removesuffix",
        "title",
        "capitalize",
        "isdigit",
        "splitlines",
        "count",
        "find",
    ]
)


def method(asked: Asked, owner: Value, name: str) -> Value:
    """Return the result of a method of a string, list, dict or tuple."""
    if isinstance(owner, str):
        return _of_text(asked, owner, name)
    if isinstance(owner, dict):
        return _of_dict(asked, owner, name)
    if isinstance(owner, list):
        return _of_list(asked, owner, name)
    if isinstance(owner, tuple) and name == "numel":
        return _product(owner)
    return UNKNOWN


def _of_text(asked: Asked, owner: str, name: str) -> Value:
    if name == "join":
        items = items_of(asked.args[0]) if asked.args else None
        if items is not None and all(isinstance(each, str) for each in items):
            return owner.join(items)
        return UNKNOWN
    if name in ("read", "decode", "encode"):
        return owner
    if name not in _TEXT or not all(isinstance(each, str | int | tuple | type(None)) for each in asked.args):
        return UNKNOWN
    try:
        result = getattr(owner, name)(*asked.args)
    except (TypeError, ValueError):
        return UNKNOWN
    return result if not isinstance(result, str) or len(result) <= MAX_LENGTH else UNKNOWN


def _of_list(asked: Asked, owner: list[Value], name: str) -> Value:
    if name == "append" and asked.args and len(owner) < MAX_LENGTH:
        owner.append(asked.args[0])
    elif name == "extend" and asked.args:
        owner.extend((items_of(asked.args[0]) or [])[: MAX_LENGTH - len(owner)])
    elif name == "insert" and len(asked.args) == 2 and isinstance(asked.args[0], int) and len(owner) < MAX_LENGTH:
        owner.insert(asked.args[0], asked.args[1])
    elif name == "pop" and owner:
        place = asked.args[0] if asked.args else -1
        return owner.pop(place) if isinstance(place, int) and -len(owner) <= place < len(owner) else UNKNOWN
    elif name == "copy":
        return list(owner)
    elif name == "reverse":
        owner.reverse()
    elif name == "index":
        return UNKNOWN
    return None


def _of_dict(asked: Asked, owner: dict[Any, Value], name: str) -> Value:
    key = asked.get(0, "key")
    simple = isinstance(key, str | int | float | bool | Name)
    if name in ("get", "pop", "setdefault"):
        default = asked.get(1, "default", None)
        if not simple:
            return UNKNOWN
        if name == "get":
            return owner.get(key, default)
        return owner.pop(key, default) if name == "pop" else owner.setdefault(key, default)
    if name == "items":
        return list(owner.items())
    if name == "keys":
        return list(owner)
    if name == "values":
        return list(owner.values())
    if name == "update":
        given = asked.args[0] if asked.args and isinstance(asked.args[0], dict) else {}
        for key, value in (*given.items(), *asked.kwargs.items()):
            owner[key] = perhaps(asked.machine, owner.get(key, UNKNOWN), value)
        return None
    if name == "copy":
        return dict(owner)
    return UNKNOWN


def _product(shape: tuple[Value, ...]) -> Value:
    count = 1
    for each in shape:
        if not isinstance(each, int):
            return UNKNOWN
        count *= each
    return count
