"""Computes the constant expressions of Python code that paths are built from. Runs none of it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

MAX_TEXT = 4096
_MAX_DEPTH = 40
_MAX_BEGINNING = 8


class Unknown:
    """The value of an expression that is not constant."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Names:
    """Something with attributes: a module, or the parsed command line."""

    values: Mapping[str, object] = field(default_factory=dict)


Scope = MutableMapping[str, object]

_SAME = frozenset(
    {"abspath", "realpath", "normpath", "expanduser", "expandvars", "fspath", "str", "resolve", "absolute"}
)
_PATHS = frozenset({"Path", "PurePath", "PosixPath", "PurePosixPath"})
_PERCENT = re.compile("%[sd]")
_BRACES = re.compile(r"\{\w*\}")
_JOINS = frozenset({"join", "joinpath"})


def fold(node: ast.expr, scope: Mapping[str, object], depth: int = 0) -> object:
    """Return the value of the expression, or UNKNOWN. Paths of pathlib are PurePosixPath."""
    rule = _RULES.get(type(node))
    if rule is None or depth > _MAX_DEPTH:
        return UNKNOWN
    try:
        value = rule(node, lambda inner: fold(inner, scope, depth + 1), scope)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return UNKNOWN
    return UNKNOWN if isinstance(value, str | PurePosixPath) and len(str(value)) > MAX_TEXT else value


def as_path(value: object) -> str | None:
    """Return the text of a value that may be a path."""
    if isinstance(value, str | PurePosixPath):
        text = str(value)
        return text if text and len(text) <= MAX_TEXT and "\0" not in text and "\n" not in text else None
    return None


def call_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or ""


def known_beginning(node: ast.expr, scope: Mapping[str, object], depth: int = 0) -> object:
    """Return the constant folder that a path of otherwise unknown parts begins with, or UNKNOWN."""
    if isinstance(node, ast.Call) and call_name(node) in _JOINS | _PATHS:
        parts: list[ast.expr] = list(node.args)
        if call_name(node) == "joinpath" and isinstance(node.func, ast.Attribute):
            parts.insert(0, node.func.value)
        return _joined([fold(part, scope) for part in parts])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left = fold(node.left, scope)
        nested = left is UNKNOWN and depth < _MAX_BEGINNING
        return known_beginning(node.left, scope, depth + 1) if nested else left
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        text = _leading_text(node, scope)
        return text.rpartition("/")[0] or UNKNOWN
    return UNKNOWN


def _joined(values: Sequence[object]) -> object:
    known: list[str] = []
    for value in values:
        if not isinstance(value, str | PurePosixPath):
            break
        known.append(str(value))
    return os.path.join(*known) if known else UNKNOWN


def _leading_text(node: ast.expr, scope: Mapping[str, object], depth: int = 0) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth < _MAX_BEGINNING:
        left = fold(node.left, scope)
        return left if isinstance(left, str) else _leading_text(node.left, scope, depth + 1)
    text = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        value = fold(part.value if isinstance(part, ast.FormattedValue) else part, scope)
        if isinstance(value, Unknown):
            break
        text += str(value)
    return text


Fold = Callable[[ast.expr], object]


def _is_scalar(value: object) -> bool:
    """Return whether the value is no collection: those could grow without bound."""
    return value is None or isinstance(value, str | int | float | PurePosixPath)


def _known(*values: object) -> bool:
    return not any(isinstance(value, Unknown) for value in values)


def _name(node: ast.Name, of: Fold, scope: Mapping[str, object]) -> object:
    return scope.get(node.id, UNKNOWN)


def _text(node: ast.JoinedStr, of: Fold, scope: Mapping[str, object]) -> object:
    parts = [of(part.value) if isinstance(part, ast.FormattedValue) else of(part) for part in node.values]
    plain = all(not isinstance(part, ast.FormattedValue) or part.format_spec is None for part in node.values)
    return "".join(map(str, parts)) if plain and all(map(_is_scalar, parts)) else UNKNOWN


def _binary(node: ast.BinOp, of: Fold, scope: Mapping[str, object]) -> object:
    left, right = of(node.left), of(node.right)
    if not _known(left, right):
        return UNKNOWN
    if isinstance(node.op, ast.Div) and PurePosixPath in (type(left), type(right)):
        return PurePosixPath(left, right)  # type: ignore[arg-type]
    if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(node.op, ast.Mod) and isinstance(left, str) and not _PERCENT.sub("", left).count("%"):
        return left % (right if isinstance(right, tuple) else (right,))
    return UNKNOWN


def _attribute(node: ast.Attribute, of: Fold, scope: Mapping[str, object]) -> object:
    value = of(node.value)
    if isinstance(value, Names):
        return value.values.get(node.attr, UNKNOWN)
    if isinstance(value, PurePosixPath) and node.attr in ("parent", "name", "stem", "suffix"):
        return getattr(value, node.attr)
    return UNKNOWN


def _subscript(node: ast.Subscript, of: Fold, scope: Mapping[str, object]) -> object:
    value, key = of(node.value), of(node.slice)
    if isinstance(value, dict | list | tuple) and _known(key):
        return value[key]  # type: ignore[call-overload]
    return UNKNOWN


def _call(node: ast.Call, of: Fold, scope: Mapping[str, object]) -> object:
    name = call_name(node)
    values = [of(arg) for arg in node.args]
    if name in ("getcwd", "cwd") and not values:
        return PurePosixPath(".") if name == "cwd" else "."
    if len(values) == 2 and (name == "getenv" or (name == "get" and _is_environ(node.func))):
        return values[1]
    inner = of(node.func.value) if isinstance(node.func, ast.Attribute) else UNKNOWN
    if isinstance(inner, PurePosixPath):
        return _of_path(inner, name, values)
    if isinstance(inner, str) and name == "format" and not set("{}") & set(_BRACES.sub("", inner)):
        given = {word.arg: of(word.value) for word in node.keywords if word.arg}
        return inner.format(*values, **given) if _known(*values, *given.values()) else UNKNOWN
    if isinstance(inner, str) and name == "join":
        return UNKNOWN  # the join of texts
    if not values or not _known(*values):
        return UNKNOWN
    if name in _PATHS:
        return PurePosixPath(*values)  # type: ignore[arg-type]
    if name == "join":
        return os.path.join(*map(str, values))
    if name == "dirname":
        return os.path.dirname(str(values[0]))
    if name == "basename":
        return os.path.basename(str(values[0]))
    if name in _SAME and len(values) == 1:
        return os.path.expanduser(str(values[0])) if name == "expanduser" else str(values[0])
    return UNKNOWN


def _is_environ(function: ast.expr) -> bool:
    value = function.value if isinstance(function, ast.Attribute) else None
    return "environ" in (getattr(value, "attr", ""), getattr(value, "id", ""))


def _of_path(path: PurePosixPath, name: str, values: Sequence[object]) -> object:
    if name == "joinpath" and _known(*values):
        return path.joinpath(*map(str, values))
    if name == "with_suffix" and _known(*values):
        return path.with_suffix(str(values[0]))
    if name == "as_posix":
        return str(path)
    return PurePosixPath(os.path.expanduser(path)) if name in _SAME else UNKNOWN


def _choice(node: ast.IfExp, of: Fold, scope: Mapping[str, object]) -> object:
    test = of(node.test)
    return of(node.body if test else node.orelse) if _known(test) else UNKNOWN


def _compare(node: ast.Compare, of: Fold, scope: Mapping[str, object]) -> object:
    if len(node.ops) != 1:
        return UNKNOWN
    left, right = of(node.left), of(node.comparators[0])
    if not _known(left, right):
        return UNKNOWN
    match node.ops[0]:
        case ast.Eq() | ast.Is():
            return left == right
        case ast.NotEq() | ast.IsNot():
            return left != right
        case ast.In():
            return left in right  # type: ignore[operator]
        case ast.NotIn():
            return left not in right  # type: ignore[operator]
    return UNKNOWN


def _bool(node: ast.BoolOp, of: Fold, scope: Mapping[str, object]) -> object:
    for part in node.values:
        value = of(part)
        if not _known(value) or bool(value) is isinstance(node.op, ast.Or):
            return value
    return value


def _unary(node: ast.UnaryOp, of: Fold, scope: Mapping[str, object]) -> object:
    value = of(node.operand)
    if not _known(value):
        return UNKNOWN
    return not value if isinstance(node.op, ast.Not) else UNKNOWN


def _sequence(node: ast.List | ast.Tuple, of: Fold, scope: Mapping[str, object]) -> object:
    values = map(of, node.elts)
    return tuple(value if _is_scalar(value) else UNKNOWN for value in values)


def _dict(node: ast.Dict, of: Fold, scope: Mapping[str, object]) -> object:
    pairs = ((of(key), of(value)) for key, value in zip(node.keys, node.values, strict=True) if key is not None)
    return {key: value if _is_scalar(value) else UNKNOWN for key, value in pairs}


_RULES: Mapping[type, Callable[..., object]] = {
    ast.Constant: lambda node, of, scope: node.value,
    ast.Name: _name,
    ast.JoinedStr: _text,
    ast.BinOp: _binary,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.IfExp: _choice,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.UnaryOp: _unary,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Dict: _dict,
}
