"""Finds the functions and classes at the top of a file that nothing else in the program names: they cannot run."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple, TypeGuard

from crucible.analysis.source.trees import Tree

Lines = set[tuple[str, int]]
"""Each as (file, line number)."""

_WORD = re.compile(r"[^\W\d]\w*")
_BLANKED = bytes(code if chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in range(128)).ljust(256)
_ANY_NAME = ("eval(", "exec(", "globals(", "locals(", "__import__(")
_ANY_WORD = frozenset(
    {b"import_module", b"getmembers", b"runpy", b"Fire", b"locate", b"__subclasses__", b"__init_subclass__"}
)
_ANY_OF_A_FILE = frozenset({b"getattr", b"vars", b"__dict__"})
"""A program that uses one of these may use definitions that it never names."""


class _Definition(NamedTuple):
    file: str
    lines: range
    text: str


def unused_lines(trees: Collection[Tree], others: Iterable[str] = ()) -> Lines:
    """Return the lines of the unused definitions.

    Any mention counts as a use, also in strings and comments, since `getattr` takes names. `others` are texts that may
    name definitions of the trees: configuration, the command line, programs that were not followed.
    """
    waiting = dict[bytes, list[_Definition]]()
    rest = [_take_definitions(tree, waiting) for tree in trees]
    relevant = {*waiting, *_ANY_WORD, *_ANY_OF_A_FILE}
    mentioned = new = relevant.intersection(chain.from_iterable(map(_words, (*rest, *others))))
    while reached := [each for name in new & waiting.keys() for each in waiting.pop(name)]:
        new = relevant.intersection(chain.from_iterable(_words(each.text) for each in reached))
        mentioned |= new
    if mentioned & _ANY_WORD or (len(trees) > 1 and mentioned & _ANY_OF_A_FILE) or any(map(_looks_up_by_name, trees)):
        return set()
    return {(each.file, line) for rest in waiting.values() for each in rest for line in each.lines}


def _looks_up_by_name(tree: Tree) -> bool:
    """Return whether the file calls a builtin that looks names up; the method in `model.eval()` is not one."""
    text = tree.text.whole
    return "sys.modules" in text or any(_calls(text, each) for each in _ANY_NAME)


def _calls(text: str, name: str) -> bool:
    """Return whether the text calls a function of this name, other than as a method."""
    count = text.count(name)
    return count > 0 and count > text.count(f".{name}")


def _take_definitions(tree: Tree, definitions: dict[bytes, list[_Definition]]) -> str:
    """Add the file's top-level definitions to `definitions`. Return the rest of its text."""
    name, lines = tree.text.name, tree.text.lines
    rest: list[str] = []
    after = 0
    for each in tree.body:
        if not _needs_a_mention(each):
            continue
        begin, end = each.lineno - 1, each.end_lineno or each.lineno
        text = "\n".join(lines[begin:end])
        definitions.setdefault(each.name.encode(), []).append(_Definition(name, range(begin + 1, end + 1), text))
        rest += lines[after:begin]
        after = end
    return "\n".join((*rest, *lines[after:]))


def _words(text: str) -> Iterable[bytes]:
    """Return every word of the text, including non-names such as `1e5`.

    Splitting plain ASCII takes a quarter of the pattern's time, and bytes split and compare faster than strings.
    """
    return text.encode().translate(_BLANKED).split() if text.isascii() else map(str.encode, _WORD.findall(text))


def _needs_a_mention(statement: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return whether a definition can only run if something names it. Decorators, metaclasses and dunder names may run
    it at once.
    """
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if statement.decorator_list or statement.name.startswith("__"):
        return False
    return not (isinstance(statement, ast.ClassDef) and statement.keywords)
