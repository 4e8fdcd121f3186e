"""Calls in `try` blocks: their failure need not end the program."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.interpreter.try_blocks import below, goes_round
from crucible.analysis.values.values import Where


def errors_are_caught(seen: Seen, where: Where) -> bool:
    """Return whether the line is in a `try` body whose errors are caught."""
    return any(_holds(each, where) for each in _try_statements(seen, where[0]))


def without_handled(seen: Seen, signs: Iterable[tuple[Where, str]]) -> list[tuple[Where, str]]:
    """Return the signs without those whose failure the program handles by going another way."""
    found = list(signs)
    tries: dict[str, list[ast.Try]] = {}
    for file in {where[0] for where, _ in found}:
        tries[file] = [each for each in _try_statements(seen, file) if goes_round(each)]
    return [(where, why) for where, why in found if not any(_holds(each, where) for each in tries[where[0]])]


def _try_statements(seen: Seen, file: str) -> list[ast.Try]:
    """Return the `try` statements of a file that have handlers."""
    tree = seen.machine.trees.get(file)
    statements = below(tree.body) if tree is not None else ()
    return [each for each in statements if isinstance(each, ast.Try) and each.handlers]


def _holds(block: ast.Try, where: Where) -> bool:
    """Return whether the line is in the body of a `try` statement."""
    return block.body[0].lineno <= where[1] <= (block.body[-1].end_lineno or 0)
