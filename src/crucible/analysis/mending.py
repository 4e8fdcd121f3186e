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


_HEAD = re.compile(r"^\s*(async\s+)?(if|for|while|with|def|class|else|elif|except|finally)\b")
_NO_BODY = re.compile(r"^expected an indented block after .* on line (\d+)$")
_UNCLOSED = re.compile(r"unterminated string|was never closed|unterminated triple|unterminated f-string")


def mended(lines: list[str]) -> tuple[ast.Module, int, bool]:
    """The tree of what can be parsed, how many lines were taken out, and whether all was looked at."""
    kept = list(lines[:MAX_LINES])
    _take_out_unfinished(kept)
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
        tree = _piece_by_piece(kept)
    gone = sum(1 for before, after in zip(lines, kept, strict=False) if before != after)
    return tree, gone, len(kept) == len(lines)


def _take_out_unfinished(lines: list[str]) -> None:
    """What opens and is never closed, with all that follows inside to the tolerant parser, and unfinished heads."""
    for _ in range(_TRIES):
        try:
            ast.parse("\n".join(lines) + "\n")
        except SyntaxError as error:
            line = min(error.lineno or 1, len(lines))
            if not _UNCLOSED.search(error.msg) and not (_opens(lines, line) and not _OPENS.match(lines[line - 1])):
                return
            _take_out(lines, line, line)
        except (ValueError, RecursionError, MemoryError):
            return
        else:
            return


def _piece_by_piece(lines: list[str]) -> ast.Module:
    """Of what cannot be mended as a whole, the statements of the outermost level that can be parsed alone."""
    body: list[ast.stmt] = []
    starts = [number for number, line in enumerate(lines) if line[:1].strip() and line[0] not in "#)]}"]
    for first, last in zip(starts, [*starts[1:], len(lines)], strict=True):
        try:
            piece = ast.parse("\n".join(lines[first:last]) + "\n")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        body += ast.increment_lineno(piece, first).body
    return ast.Module(body, [])


def _guilty(lines: list[str], error: SyntaxError) -> int:
    """The line to take out: of a block without a body, its head."""
    line = min(error.lineno or 1, len(lines))
    head = _NO_BODY.search(error.msg)
    return min(int(head[1]), len(lines)) if head else line


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
        opens = _opens(lines, number) and line.strip() not in ("if True:", "pass")
        lines[number - 1] = (
            f"{indent}if True:" if opens else f"{indent}pass" if indent and line.strip() != "pass" else ""
        )


def _opens(lines: list[str], number: int) -> bool:
    """Whether the line is the head of a block, also one that is not yet written to its colon."""
    line = lines[number - 1]
    if _OPENS.match(line):
        return True
    below = next((each for each in lines[number:] if each.strip()), "")
    return bool(_HEAD.match(line)) and _indent(below) > _indent(line)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
