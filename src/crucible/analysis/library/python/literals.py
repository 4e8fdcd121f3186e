"""Texts that stand for values: flags and lines of configs."""

from __future__ import annotations

import ast
from typing import Any

import yaml

from crucible.analysis.values.values import UNKNOWN, Name, Value

MAX_CONFIG = 200_000
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def literal(text: str) -> Value:
    """Return the value of a text written in Python or YAML, else the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > 2_000:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def as_type(text: str, kind: Value) -> Value:
    """Return the value of a flag's text after its `type=`; UNKNOWN if it does not convert."""
    name = kind.path.rpartition(".")[2] if isinstance(kind, Name) else ""
    try:
        if name == "int":
            return int(text)
        if name == "float":
            return float(text)
        if name == "bool":
            return bool(text)
        if name in ("str", "Path") or kind is None:
            return text
    except ValueError:
        return UNKNOWN
    return literal(text)


def read_yaml(text: str) -> Value:
    """Return the value of a YAML text, or UNKNOWN if it is too long or not valid."""
    if len(text) > MAX_CONFIG:
        return UNKNOWN
    try:
        return _plain(yaml.safe_load(text), 0)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return UNKNOWN


def _plain(value: Any, depth: int) -> Value:
    """Return the value reduced to types that the interpreter handles. YAML reads 1e-3 as a text."""
    if depth > 20:
        return UNKNOWN
    if isinstance(value, dict):
        return {
            key: _plain(each, depth + 1) for key, each in value.items() if isinstance(key, str | int | float | bool)
        }
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, str) and value[:1].isdigit():
        found = literal(value)
        return found if isinstance(found, int | float) else value
    return value if isinstance(value, str | int | float | bool | type(None)) else UNKNOWN
