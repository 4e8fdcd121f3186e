"""Repairs broken code: takes out the statements that cannot be parsed; the others keep their line numbers."""

from __future__ import annotations

import ast
import re

import parso
from parso.python.tree import PythonErrorLeaf, PythonErrorNode
from parso.tree import BaseNode, NodeOrLeaf

MAX_LINES = 2_500
"""The error-tolerant parser is slow, so only this many lines of a broken file are read."""

_TRIES = 8
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_TRIPLE = ('"""', "'''")
_TOKENS = re.compile(r"""\"{3}|'{3}|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|\#.*|[()\[\]{}]""")
"""Strings, comments and brackets: matching the first two keeps brackets in them from being counted."""
_IMPORT = re.compile(r"^\s*from\s+([A-Za-z_][\w.]*)\s+import\b")
_JOINS = re.compile(r"^(else|elif|except|finally|@)\b|^@")
"""Unindented lines that belong to the statement before or after them."""
_HEAD = re.compile(r"^\s*(async\s+)?(if|for|while|with|def|class|else|elif|except|finally)\b")
_NO_BODY = re.compile(r"^expected an indented block after .* on line (\d+)$")
_NAMED = re.compile(r"^\s*(?:async\s+)?(def|class)\s+([A-Za-z_]\w*)")
_OPENS = re.compile(r"^\s*(async |if|for|while|with|def|class|try|else|elif|except|finally|match|case)\b.*:\s*(#.*)?$")


def repair(lines: list[str]) -> tuple[ast.Module, int, bool]:
    """Return the tree of what can be parsed, how many lines were taken out, and whether all lines were considered.

    Of three strategies the one that loses the fewest lines wins.
    """
    first = list(lines[:MAX_LINES])
    best, fewest = ast.Module([], []), len(lines) + 1
    for strategy in (_close_brackets, _drop_errors, _parse_pieces):
        kept = list(first)
        tree = strategy(kept)
        lost = sum(1 for before, after in zip(lines, kept, strict=False) if before != after)
        if tree is not None and tree.body and lost < fewest:
            best, fewest = tree, lost
        if fewest <= 1:
            break
    return best, min(fewest, len(lines)), len(first) == len(lines) or not best.body


def _parse(lines: list[str]) -> ast.Module | None:
    """Return the parsed lines, or None if they are not valid Python."""
    try:
        return ast.parse("\n".join(lines) + "\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _close_brackets(lines: list[str]) -> ast.Module | None:
    """Return the tree after closing the open brackets of a statement being typed, or dropping its last line as well."""
    unclosed = _scan_brackets(lines)[0]
    if not unclosed or any(bracket in _TRIPLE for bracket, _ in unclosed):
        return None
    start = unclosed[0][1] - 1
    ends = (
        at for at in range(start + 1, len(lines)) if lines[at].strip() and _indent(lines[at]) <= _indent(lines[start])
    )
    end = max(at for at in range(start, next(ends, len(lines))) if lines[at].strip())
    for last in (lines[end], ""):
        closers = "".join(_CLOSES.get(mark, mark) for mark, _ in reversed(_scan_brackets([*lines[start:end], last])[0]))
        tree = _parse([*lines[:end], last + closers, *lines[end + 1 :]])
        if tree is not None:
            lines[end] = ""
            return tree
    return None


def _drop_errors(kept: list[str]) -> ast.Module | None:
    """Return the tree after taking out what the error-tolerant parser rejects, then a few more lines if needed."""
    _finish_heads(kept)
    for first, last in _error_lines(kept):
        _blank_lines(kept, first, last)
    for _ in range(_TRIES):
        try:
            return ast.parse("\n".join(kept) + "\n")
        except SyntaxError as error:
            line = _line_to_drop(kept, error)
            _blank_lines(kept, line, line)
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _finish_heads(lines: list[str]) -> None:
    """Complete the heads of blocks that have no colon yet. Else the tolerant parser counts the body as an error."""
    for _ in range(_TRIES):
        try:
            ast.parse("\n".join(lines) + "\n")
        except SyntaxError as error:
            line = min(error.lineno or 1, len(lines))
            head = lines[line - 1]
            if not _HEAD.match(head) or _OPENS.match(head) or not _has_body(lines, line - 1):
                return
            _blank_lines(lines, line, line)
        except (ValueError, RecursionError, MemoryError):
            return
        else:
            return


def _parse_pieces(lines: list[str]) -> ast.Module | None:
    """Return the tree of the unindented statements that parse one by one; of the others, of their inner lines."""
    unclosed, inside = _scan_brackets(lines)
    before = list(lines)
    text = next((line - 1 for mark, line in unclosed if mark in _TRIPLE), None)
    if text is not None:
        lines[text] = ""
        inside = _scan_brackets(lines)[1]
    starts = [at for at, line in enumerate(lines) if line[:1] not in ("", *" \t)]}") and at not in inside]
    pieces = list(zip(starts, [*starts[1:], len(lines)], strict=False))
    for first, last in pieces:
        if _JOINS.match(lines[first]) or _parse(lines[first:last]) is not None:
            continue
        lines[first] = _bare_import(lines[first]) or (_valid_head(lines[first]) if _has_body(lines, first) else "")
        if _parse(lines[first:last]) is None:
            lines[first + 1 : last] = [""] * (last - first - 1)
            lines[first] = "" if lines[first].endswith(":") else lines[first]
    tree = _parse(lines) or _parse_independent(lines, pieces)
    return tree if text is None or _is_code(before[text + 1 :], lines[text + 1 :]) else None


def _is_code(before: list[str], after: list[str]) -> bool:
    """Return whether the text after an unclosed triple quote is code: nearly all of it can be parsed."""
    return sum(one != other for one, other in zip(before, after, strict=True)) <= len(before) / 10


def _parse_independent(lines: list[str], pieces: list[tuple[int, int]]) -> ast.Module:
    """Return the statements that parse on their own. The last resort: parts of broken blocks are dropped."""
    body: list[ast.stmt] = []
    for first, last in pieces:
        tree = _parse(lines[first:last])
        if tree is None:
            lines[first:last] = [""] * (last - first)
        else:
            body += ast.increment_lineno(tree, first).body
    return ast.Module(body, [])


def _bare_import(line: str) -> str:
    """Return `import package` for a line `from package import (...`, else an empty string."""
    found = _IMPORT.match(line)
    return f"import {found[1]}" if found else ""


def _valid_head(line: str) -> str:
    """Return a valid block head to replace a broken one. It has the same kind and name, so that a `return` in its body
    still belongs to a function.
    """
    found = _NAMED.match(line)
    if found is None:
        return "if True:"
    return f"class {found[2]}:" if found[1] == "class" else f"def {found[2]}(*_, **__):"


def _has_body(lines: list[str], at: int) -> bool:
    """Return whether the next line that is not blank is indented further."""
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return _indent(following) > _indent(lines[at])


def _indent(line: str) -> int:
    """Return the indentation of a line, in characters."""
    return len(line) - len(line.lstrip())


def _scan_brackets(lines: list[str]) -> tuple[list[tuple[str, int]], set[int]]:
    """Return the brackets and triple quotes still open at the end, with their lines, and the lines that start inside a
    string.
    """
    unclosed: list[tuple[str, int]] = []
    inside: set[int] = set()
    for number, line in enumerate(lines):
        text = unclosed[-1][0] if unclosed and unclosed[-1][0] in _TRIPLE else ""
        if text:
            inside.add(number)
        at = 0
        while at < len(line):
            if text:
                end = line.find(text, at)
                if end < 0:
                    break
                at, text = end + 3, ""
                unclosed.pop()
                continue
            found = _TOKENS.search(line, at)
            if found is None:
                break
            at, mark = found.end(), found[0]
            if mark in _TRIPLE:
                text = mark
                unclosed.append((mark, number + 1))
            elif mark in _CLOSES:
                unclosed.append((mark, number + 1))
            elif mark in _CLOSES.values() and unclosed and _CLOSES.get(unclosed[-1][0]) == mark:
                unclosed.pop()
    return unclosed, inside


def _line_to_drop(lines: list[str], error: SyntaxError) -> int:
    """Return the number of the line to take out: that of the head if a block has no body."""
    line = min(error.lineno or 1, len(lines))
    head = _NO_BODY.search(error.msg)
    return min(int(head[1]), len(lines)) if head else line


def _error_lines(lines: list[str]) -> list[tuple[int, int]]:
    """Return the first and last lines of what the tolerant parser rejects, innermost first."""
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


def _blank_lines(lines: list[str], first: int, last: int) -> None:
    """Blank the lines, but replace block heads with valid ones, so that their bodies can stay."""
    for number in range(first, min(last, len(lines)) + 1):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        heads = _OPENS.match(line) or (number == last and _has_body(lines, number - 1))
        opens = heads and line.strip() not in (_valid_head(line), "pass")
        replacement = (
            _valid_head(line) if opens else _bare_import(line) or ("pass" if indent and line.strip() != "pass" else "")
        )
        lines[number - 1] = f"{indent}{replacement}" if replacement else ""
