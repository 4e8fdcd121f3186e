"""Unused: functions and classes at the top of a file that nothing else in the program names. They cannot run."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple, TypeGuard

from crucible.analysis.source.trees import Tree

Lines = set[tuple[str, int]]
"""By file and line."""

_WORD = re.compile(r"[^\W\d]\w*")
_BLANKED = bytes(code if chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in range(128)).ljust(256)
_ANY_NAME = ("eval(", "exec(", "globals(", "locals(", "__import__(")
_ANY_WORD = frozenset(
    {b"import_module", b"getmembers", b"runpy", b"Fire", b"locate", b"__subclasses__", b"__init_subclass__"}
)
_ANY_OF_A_FILE = frozenset({b"getattr", b"vars", b"__dict__"})
"""A program that says one of these may use what it never names."""


class _Definition(NamedTuple):
    file: str
    lines: range
    text: str


def unused(trees: Collection[Tree], others: Iterable[str] = ()) -> Lines:
    """The lines of what is unused. Whatever a text says counts, also in strings and comments: `getattr` takes names.

    `others` are texts that may name what is in the trees: settings, the command line, programs that were not followed.
    """
    waiting = dict[bytes, list[_Definition]]()
    rest = [_divided(tree, waiting) for tree in trees]
    telling = {*waiting, *_ANY_WORD, *_ANY_OF_A_FILE}
    said = new = telling.intersection(chain.from_iterable(map(_words, (*rest, *others))))
    while reached := [each for name in new & waiting.keys() for each in waiting.pop(name)]:
        new = telling.intersection(chain.from_iterable(_words(each.text) for each in reached))
        said |= new
    if said & _ANY_WORD or (len(trees) > 1 and said & _ANY_OF_A_FILE) or any(map(_asks_by_name, trees)):
        return set()
    return {(each.file, line) for rest in waiting.values() for each in rest for line in each.lines}


def _asks_by_name(tree: Tree) -> bool:
    """Whether it calls one of Python's own functions that do; `model.eval()` is none."""
    text = tree.text.whole
    return "sys.modules" in text or any(_calls(text, each) for each in _ANY_NAME)


def _calls(text: str, name: str) -> bool:
    count = text.count(name)
    return count > 0 and count > text.count(f".{name}")


def _divided(tree: Tree, definitions: dict[bytes, list[_Definition]]) -> str:
    """Adds the definitions of a file to the others; gives the rest of its text."""
    name, lines = tree.text.name, tree.text.lines
    rest: list[str] = []
    after = 0
    for each in tree.body:
        if not _waits_to_be_named(each):
            continue
        begin, end = each.lineno - 1, each.end_lineno or each.lineno
        text = "\n".join(lines[begin:end])
        definitions.setdefault(each.name.encode(), []).append(_Definition(name, range(begin + 1, end + 1), text))
        rest += lines[after:begin]
        after = end
    return "\n".join((*rest, *lines[after:]))


def _words(text: str) -> Iterable[bytes]:
    """Every name in it, and such as `1e5`, which names nothing. Plain text needs no pattern, which takes four times as
    long; words are bytes, which take a third less time to divide and compare than text.
    """
    return text.encode().translate(_BLANKED).split() if text.isascii() else map(str.encode, _WORD.findall(text))


def _waits_to_be_named(statement: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """A decorator, a metaclass or Python itself may use it at once."""
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if statement.decorator_list or statement.name.startswith("__"):
        return False
    return not (isinstance(statement, ast.ClassDef) and statement.keywords)
