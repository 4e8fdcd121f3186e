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
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_TRIPLE = ('"""', "'''")
_MARKS = re.compile(r"""\"{3}|'{3}|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|\#.*|[()\[\]{}]""")
"""Texts, comments and brackets, so that what is in the first two is not taken for the third."""
_IMPORT = re.compile(r"^\s*from\s+([A-Za-z_][\w.]*)\s+import\b")
_JOINS = re.compile(r"^(else|elif|except|finally|@)\b|^@")
"""Lines at the left edge that belong to the statement before or after them."""
_HEAD = re.compile(r"^\s*(async\s+)?(if|for|while|with|def|class|else|elif|except|finally)\b")
_NO_BODY = re.compile(r"^expected an indented block after .* on line (\d+)$")
_NAMED = re.compile(r"^\s*(?:async\s+)?(def|class)\s+([A-Za-z_]\w*)")
_OPENS = re.compile(r"^\s*(async |if|for|while|with|def|class|try|else|elif|except|finally|match|case)\b.*:\s*(#.*)?$")


def mended(lines: list[str]) -> tuple[ast.Module, int, bool]:
    """The tree of what can be parsed, how many lines were taken out, and whether all was looked at."""
    first = list(lines[:MAX_LINES])
    best, fewest = ast.Module([], []), len(lines) + 1
    for way in (_closed, _without_errors, _piece_by_piece):
        kept = list(first)
        tree = way(kept)
        gone = sum(1 for before, after in zip(lines, kept, strict=False) if before != after)
        if tree is not None and tree.body and gone < fewest:
            best, fewest = tree, gone
        if fewest <= 1:
            break
    return best, min(fewest, len(lines)), len(first) == len(lines) or not best.body


def _parsed(lines: list[str]) -> ast.Module | None:
    try:
        return ast.parse("\n".join(lines) + "\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _closed(lines: list[str]) -> ast.Module | None:
    """A statement that is being typed lacks only its brackets, or its last line as well."""
    open_ones = _read(lines)[0]
    if not open_ones or any(bracket in _TRIPLE for bracket, _ in open_ones):
        return None
    begun = open_ones[0][1] - 1
    ends = (
        at for at in range(begun + 1, len(lines)) if lines[at].strip() and _indent(lines[at]) <= _indent(lines[begun])
    )
    end = max(at for at in range(begun, next(ends, len(lines))) if lines[at].strip())
    for last in (lines[end], ""):
        closers = "".join(_CLOSES.get(mark, mark) for mark, _ in reversed(_read([*lines[begun:end], last])[0]))
        tree = _parsed([*lines[:end], last + closers, *lines[end + 1 :]])
        if tree is not None:
            lines[end] = ""
            return tree
    return None


def _without_errors(kept: list[str]) -> ast.Module | None:
    """Without what the tolerant parser calls an error, and some lines more."""
    _finish_heads(kept)
    for first, last in _broken(kept):
        _take_out(kept, first, last)
    for _ in range(_TRIES):
        try:
            return ast.parse("\n".join(kept) + "\n")
        except SyntaxError as error:
            line = _guilty(kept, error)
            _take_out(kept, line, line)
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _finish_heads(lines: list[str]) -> None:
    """Heads of blocks that are not yet written to their colon: to the tolerant parser the body is part of the error."""
    for _ in range(_TRIES):
        try:
            ast.parse("\n".join(lines) + "\n")
        except SyntaxError as error:
            line = min(error.lineno or 1, len(lines))
            head = lines[line - 1]
            if not _HEAD.match(head) or _OPENS.match(head) or not _has_body(lines, line - 1):
                return
            _take_out(lines, line, line)
        except (ValueError, RecursionError, MemoryError):
            return
        else:
            return


def _piece_by_piece(lines: list[str]) -> ast.Module | None:
    """Each statement at the left edge by itself; of one that cannot be parsed, its inner lines likewise."""
    open_ones, inside = _read(lines)
    before = list(lines)
    text = next((line - 1 for mark, line in open_ones if mark in _TRIPLE), None)
    if text is not None:
        lines[text] = ""
        inside = _read(lines)[1]
    starts = [at for at, line in enumerate(lines) if line[:1] not in ("", *" \t)]}") and at not in inside]
    pieces = list(zip(starts, [*starts[1:], len(lines)], strict=False))
    for first, last in pieces:
        if _JOINS.match(lines[first]) or _parsed(lines[first:last]) is not None:
            continue
        lines[first] = _import_alone(lines[first]) or (_head(lines[first]) if _has_body(lines, first) else "")
        if _parsed(lines[first:last]) is None:
            lines[first + 1 : last] = [""] * (last - first - 1)
            lines[first] = "" if lines[first].endswith(":") else lines[first]
    tree = _parsed(lines) or _only_whole(lines, pieces)
    return tree if text is None or _is_code(before[text + 1 :], lines[text + 1 :]) else None


def _is_code(before: list[str], after: list[str]) -> bool:
    """What follows the mark of a text that never ends: code, if nearly all of it can be parsed, else the text."""
    return sum(one != other for one, other in zip(before, after, strict=True)) <= len(before) / 10


def _only_whole(lines: list[str], pieces: list[tuple[int, int]]) -> ast.Module:
    """The last resort: statements that stand by themselves, without those that belong to a block that is gone."""
    body: list[ast.stmt] = []
    for first, last in pieces:
        tree = _parsed(lines[first:last])
        if tree is None:
            lines[first:last] = [""] * (last - first)
        else:
            body += ast.increment_lineno(tree, first).body
    return ast.Module(body, [])


def _import_alone(line: str) -> str:
    """`from package import (` brings the package, whatever of it."""
    found = _IMPORT.match(line)
    return f"import {found[1]}" if found else ""


def _head(line: str) -> str:
    """In place of the head of a block that cannot be parsed: one of the same kind and name, so that a return in it ends
    nothing else.
    """
    found = _NAMED.match(line)
    if found is None:
        return "if True:"
    return f"class {found[2]}:" if found[1] == "class" else f"def {found[2]}(*_, **__):"


def _has_body(lines: list[str], at: int) -> bool:
    """What comes next stands further in."""
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return _indent(following) > _indent(lines[at])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read(lines: list[str]) -> tuple[list[tuple[str, int]], set[int]]:
    """Brackets and long texts still open at the end, each with its line, and which lines begin inside a text."""
    open_ones: list[tuple[str, int]] = []
    inside: set[int] = set()
    for number, line in enumerate(lines):
        text = open_ones[-1][0] if open_ones and open_ones[-1][0] in _TRIPLE else ""
        if text:
            inside.add(number)
        at = 0
        while at < len(line):
            if text:
                end = line.find(text, at)
                if end < 0:
                    break
                at, text = end + 3, ""
                open_ones.pop()
                continue
            found = _MARKS.search(line, at)
            if found is None:
                break
            at, mark = found.end(), found[0]
            if mark in _TRIPLE:
                text = mark
                open_ones.append((mark, number + 1))
            elif mark in _CLOSES:
                open_ones.append((mark, number + 1))
            elif mark in _CLOSES.values() and open_ones and _CLOSES.get(open_ones[-1][0]) == mark:
                open_ones.pop()
    return open_ones, inside


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
        heads = _OPENS.match(line) or (number == last and _has_body(lines, number - 1))
        opens = heads and line.strip() not in (_head(line), "pass")
        instead = _head(line) if opens else _import_alone(line) or ("pass" if indent and line.strip() != "pass" else "")
        lines[number - 1] = f"{indent}{instead}" if instead else ""
