"""Broken code made whole: the statements that cannot be parsed are taken out, the others keep their lines."""

from __future__ import annotations

import ast
import re

import parso
from parso.python.tree import PythonErrorLeaf, PythonErrorNode
from parso.tree import BaseNode, NodeOrLeaf

MAX_LINES = 2_500
"""The tolerant parser is slower; more of a broken file is not read."""

_TRIES = 8
_OPENS = re.compile(r"^\s*(async |if|for|while|with|def|class|try|else|elif|except|finally|match|case)\b.*:\s*(#.*)?$")


def mended(lines: list[str]) -> tuple[ast.Module, int, bool]:
    """The tree of what can be parsed, how many lines were taken out, and whether all was looked at."""
    kept = list(lines[:MAX_LINES])
    for first, last in _broken(kept):
        _take_out(kept, first, last)
    for _ in range(_TRIES):
        try:
            tree = ast.parse("\n".join(kept) + "\n")
            break
        except SyntaxError as error:
            line = _guilty(kept, error)
            _take_out(kept, line, line)
        except ValueError:
            return ast.Module([], []), len(lines), True
        except (RecursionError, MemoryError):
            return ast.Module([], []), len(lines), True
    else:
        tree = ast.Module([], [])
    gone = sum(1 for before, after in zip(lines, kept, strict=False) if before != after)
    return tree, gone, len(kept) == len(lines)


def _guilty(lines: list[str], error: SyntaxError) -> int:
    """The line to take out: of a block without a body, its head."""
    line = min(error.lineno or 1, len(lines))
    if error.msg.startswith("expected an indented block"):
        before = [number for number in range(1, (error.lineno or 1)) if lines[number - 1].strip()]
        return before[-1] if before else line
    return line


def _broken(lines: list[str]) -> list[tuple[int, int]]:
    """First and last lines of what the tolerant parser calls an error, innermost first."""
    try:
        tree = parso.parse("\n".join(lines) + "\n")  # type: ignore[no-untyped-call]
    except (RecursionError, MemoryError, ValueError, IndexError, AssertionError):
        return []
    found: list[tuple[int, int]] = []
    waiting: list[NodeOrLeaf] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, PythonErrorLeaf | PythonErrorNode):
            found.append((node.start_pos[0], max(node.start_pos[0], node.end_pos[0] - (node.end_pos[1] == 0))))
        elif isinstance(node, BaseNode):
            waiting.extend(node.children)
    return found


def _take_out(lines: list[str], first: int, last: int) -> None:
    """Blanks the lines; the head of a block stays one, so that what is in it may stay."""
    for number in range(first, min(last, len(lines)) + 1):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        opens = _OPENS.match(line) and line.strip() not in ("if True:", "pass")
        lines[number - 1] = (
            f"{indent}if True:" if opens else f"{indent}pass" if indent and line.strip() != "pass" else ""
        )
