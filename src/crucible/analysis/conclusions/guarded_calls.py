"""Tries: what may fail without ending the program."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.interpreter.try_blocks import below, goes_round
from crucible.analysis.values.values import Where


def caught(seen: Seen, where: Where) -> bool:
    """The line stands in a `try` that lets errors pass."""
    return any(_holds(each, where) for each in _of_file(seen, where[0]))


def unless_tried(seen: Seen, signs: Iterable[tuple[Where, str]]) -> list[tuple[Where, str]]:
    """Without those whose failure the program goes round."""
    found = list(signs)
    tries: dict[str, list[ast.Try]] = {}
    for file in {where[0] for where, _ in found}:
        tries[file] = [each for each in _of_file(seen, file) if goes_round(each)]
    return [(where, why) for where, why in found if not any(_holds(each, where) for each in tries[where[0]])]


def _of_file(seen: Seen, file: str) -> list[ast.Try]:
    tree = seen.machine.trees.get(file)
    statements = below(tree.body) if tree is not None else ()
    return [each for each in statements if isinstance(each, ast.Try) and each.handlers]


def _holds(block: ast.Try, where: Where) -> bool:
    return block.body[0].lineno <= where[1] <= (block.body[-1].end_lineno or 0)
