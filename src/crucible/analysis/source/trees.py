"""Trees: the syntax tree of each file, also of one that is being typed."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from crucible.analysis.source.notebook import cells_of
from crucible.analysis.source.sources import Sources, Text, decoded


@dataclass(frozen=True)
class Tree:
    """`body` is what could be parsed of the text; `notes` say what could not."""

    text: Text
    body: tuple[ast.stmt, ...]
    notes: tuple[str, ...] = ()


def nodes(root: ast.AST) -> list[ast.AST]:
    """The node and all below it, in the order of `ast.walk` and in a third of its time; without loads and stores."""
    found = [root]
    for node in found:
        inner = _INNER.get(type(node))
        if inner is None:
            found += ast.iter_child_nodes(node)
            continue
        for name in inner:
            value = getattr(node, name)
            if type(value) is list:
                found += value
            elif value is not None:
                found.append(value)
    return found


_INNER: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Name: (), ast.Constant: (), ast.alias: (), ast.Pass: (), ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"), ast.keyword: ("value",), ast.arg: ("annotation",), ast.Tuple: ("elts",),
    ast.List: ("elts",), ast.Starred: ("value",), ast.Expr: ("value",), ast.Call: ("func", "args", "keywords"),
    ast.BinOp: ("left", "op", "right"), ast.UnaryOp: ("op", "operand"), ast.BoolOp: ("op", "values"),
    ast.Compare: ("left", "ops", "comparators"), ast.Assign: ("targets", "value"),
    ast.AugAssign: ("target", "op", "value"), ast.Return: ("value",), ast.If: ("test", "body", "orelse"),
    ast.For: ("target", "iter", "body", "orelse"), ast.With: ("items", "body"),
    ast.withitem: ("context_expr", "optional_vars"), ast.JoinedStr: ("values",),
    ast.FormattedValue: ("value", "format_spec"),
    **dict.fromkeys((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Eq, ast.Lt, ast.Gt, ast.Not, ast.USub), ()),
}  # fmt: skip
"""Where the nodes are, for the kinds that are most frequent: lists of nothing else, a node, or None."""


def tree_of(sources: Sources, name: str) -> Tree:
    data = sources.files[name]
    text = cells_of(name, data) if name.endswith(".ipynb") else decoded(name, data)
    if not text.lines:
        return Tree(text, (), text.notes)
    return parsed(text)


def parsed(text: Text) -> Tree:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape that is none; not ours to say
            return Tree(text, tuple(ast.parse(text.whole).body), text.notes)
    except SyntaxError as error:
        return _mended(text, error.lineno or 1, error.msg)
    except (RecursionError, MemoryError, ValueError):
        return _mended(text, 1, "it is too large or nested too deeply")


def _mended(text: Text, line: int, why: str) -> Tree:
    # Only a program that is broken pays for loading the other parser.
    from crucible.analysis.source.repair import mended

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree, gone, whole = mended(list(text.lines))
    at = text.evidence(line)
    notes = [*text.notes, f"{at.file}:{at.line} cannot be parsed ({why}); {gone} lines were left out."]
    if not whole:
        notes.append(f"Of {text.name} only the beginning was read, because it cannot be parsed.")
    return Tree(text, tuple(tree.body), tuple(notes))
