"""`try` blocks that let the program continue without what failed."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crucible.analysis.source.trees import nodes

_Part = ast.stmt | ast.ExceptHandler | ast.match_case

_SHORT = 3
"""Statements, including nested ones, of a `try` body with a fallback. A `try` around a whole program only reports
errors."""

_FITTING = (
    "Exception",
    "RuntimeError",
    "AssertionError",
    "IndexError",
    "XGBoostError",
    "LightGBMError",
    "CatBoostError",
)
"""Names of exceptions that a missing GPU raises, or that catch those."""

_PLAIN = frozenset({"print", "float", "int", "str", "repr", "dict", "list", "tuple", "bool"})
_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})


def goes_round(block: ast.Try) -> bool:
    """Return whether the block is short and does not end the program if a GPU is missing."""
    return _is_short(block) and any(map(_goes_on, block.handlers))


def goes_another_way(block: ast.Try | ast.TryStar) -> bool:
    """Return whether a handler is a fallback that replaces the body: it sets, returns or calls the same.

    It then counts for all calls in the body. A handler that only reports may belong to a whole program.
    """
    if not isinstance(block, ast.Try) or not goes_round(block):
        return False
    meant, only = _results(block.body), _calls(block.body) if len(block.body) == 1 else set()
    return any(_fits(each) and _comes_to_the_same(each.body, meant, only) for each in block.handlers)


def _comes_to_the_same(body: Sequence[ast.stmt], meant: Mapping[str, ast.expr], only: set[str]) -> bool:
    """Return whether the handler makes one of the body's results, or repeats its call."""
    instead = _results(body)
    made = any(_is_made(value) for name, value in instead.items() if name in meant)
    return made or not only.isdisjoint(_calls(body))


def below(body: Sequence[_Part]) -> Iterator[ast.stmt]:
    """Yield the statements in and below the body. Expressions contain none, and are ten times as many."""
    waiting: list[_Part] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, name, ()))


def _is_short(block: ast.Try) -> bool:
    return sum(1 for _ in itertools.islice(below(block.body), _SHORT + 1)) <= _SHORT


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether the handler fits a missing GPU and does not end the program."""
    return _fits(handler) and not any(map(_ends, nodes(handler)))


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) in _EXITS)


def _fits(handler: ast.ExceptHandler) -> bool:
    """Return whether the handler catches what a missing GPU raises."""
    return handler.type is None or any(_last(each).endswith(_FITTING) for each in nodes(handler.type))


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_made(value: ast.expr) -> bool:
    """Return whether the value is a real result, not a number or None that reports a failure."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) not in _PLAIN
    return isinstance(value, ast.Name | ast.Attribute) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _results(body: Iterable[ast.stmt]) -> dict[str, ast.expr]:
    """Return the values that a block sets or returns, by name."""
    found: dict[str, ast.expr] = {}
    for each in body:
        if isinstance(each, ast.Assign):
            found |= {ast.unparse(target): each.value for target in each.targets}
        elif isinstance(each, ast.Return) and each.value is not None:
            found["return"] = each.value
    return found


def _calls(body: Iterable[ast.stmt]) -> set[str]:
    """Return the functions that a block calls as statements."""
    values = (each.value for each in body if isinstance(each, ast.Expr))
    return {ast.unparse(each.func) for each in values if isinstance(each, ast.Call)} - _PLAIN
