"""Tries: what may fail without ending the program."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence

from crucible.analysis.conclusions.seen import Seen
from crucible.analysis.values import Where

_Part = ast.stmt | ast.ExceptHandler | ast.match_case

_SHORT = 3
"""Statements of a `try` that has another way at hand, with those inside of them. A whole program in one only says
nicely that it failed."""

_FITTING = ("Exception", "RuntimeError", "AssertionError", "IndexError")
"""What a missing GPU raises, or what catches that."""

_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})


def caught(seen: Seen, where: Where) -> bool:
    """The line stands in a `try` that lets errors pass."""
    return any(_holds(each, where) for each in _of_file(seen, where[0]))


def unless_tried(seen: Seen, signs: Iterable[tuple[Where, str]]) -> list[tuple[Where, str]]:
    """Without those whose failure the program goes round."""
    found = list(signs)
    tries: dict[str, list[ast.Try]] = {}
    for file in {where[0] for where, _ in found}:
        tries[file] = [each for each in _of_file(seen, file) if _is_short(each) and _goes_on(each)]
    return [(where, why) for where, why in found if not any(_holds(each, where) for each in tries[where[0]])]


def _of_file(seen: Seen, file: str) -> list[ast.Try]:
    tree = seen.machine.trees.get(file)
    below = _below(tree.body) if tree is not None else ()
    return [each for each in below if isinstance(each, ast.Try) and each.handlers]


def _is_short(block: ast.Try) -> bool:
    return sum(1 for _ in itertools.islice(_below(block.body), _SHORT + 1)) <= _SHORT


def _below(body: Sequence[_Part]) -> Iterator[ast.stmt]:
    """Statement by statement: what stands in expressions is none, and there are ten times as many of them."""
    waiting: list[_Part] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, name, ()))


def _holds(block: ast.Try, where: Where) -> bool:
    return block.body[0].lineno <= where[1] <= (block.body[-1].end_lineno or 0)


def _goes_on(block: ast.Try) -> bool:
    return any(_fits(each) and not any(map(_ends, ast.walk(each))) for each in block.handlers)


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) in _EXITS)


def _fits(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in ast.unparse(handler.type) for name in _FITTING)
