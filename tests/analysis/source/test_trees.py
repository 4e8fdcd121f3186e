from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from crucible.analysis.source.sources import Sources
from crucible.analysis.source.trees import Tree, nodes, parse_file


def tree(code: str) -> Tree:
    return parse_file(Sources({"a.py": code.encode()}, "a.py"), "a.py")


def names(code: str) -> list[str]:
    return [node.id for each in tree(code).body for node in ast.walk(each) if isinstance(node, ast.Name)]


def test_whole_code_has_no_notes() -> None:
    found = tree("x = 1\n")
    assert len(found.body) == 1
    assert found.notes == ()


@pytest.mark.parametrize(
    "code",
    [
        "good = 1\nbad = (\n",
        "good = 1\ndef f(:\n    pass\n",
        "good = 1\nclass A\n    x = 1\n",
        "good = 1\nfor x in\n",
        "good = 1\n    indented = 2\n",
        "good = 1\nbad = 'open\n",
        "good = 1\nprint 'python 2'\n",
        "good = 1\nmodel.\n",
        "good = 1\nbad = [1, 2\nmore = 3\n",
        "good = 1\nif x:\n",
        "good = 1\nreturn return\n",
        "good = 1\n@\ndef f(): pass\n",
        "good = 1\n\x0b\x00bad",
    ],
)
def test_the_sound_statements_of_broken_code_are_kept(code: str) -> None:
    if "\x00" in code:
        assert tree(code).notes
        return
    assert "good" in names(code)
    assert "cannot be parsed" in tree(code).notes[0]


def test_what_follows_the_broken_statement_is_kept_with_its_line() -> None:
    found = tree("import torch\nx = = 2\nmodel = torch.nn.Linear(3, 4)\n")
    assert [each.lineno for each in found.body if isinstance(each, ast.Assign)] == [3]
    assert "a.py:2" in found.notes[0]


def test_inside_a_function_only_the_broken_line_goes() -> None:
    code = "def f():\n    a = 1\n    b = (\n    c = 3\n    return a\n\nd = f()\n"
    assert {"a", "d"} <= set(names(code))


TYPED = """
import torch

def train(net, data):
    net.cuda()
    for epoch in range(3):
        for x in data:
            net(x).backward()
    print("done")

train(torch.nn.Linear(2, 3), [])
"""


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("def train(net, data):", "def tr"),
        ("    for epoch in range(3):", "    for epoch in r"),
        ("        for x in data:", "        for x"),
        ('    print("done")', '    print("do'),
        ('    print("done")', "    if done:"),
        ('    print("done")', "    print(dict(a=1,"),
    ],
)
def test_what_is_around_a_line_that_is_being_typed_stays(line: str, typed: str) -> None:
    kept = "\n".join(ast.unparse(each) for each in tree(TYPED.replace(line, typed)).body)
    for sound in ("import torch", "net.cuda()", "net(x).backward()", "torch.nn.Linear(2, 3)"):
        assert sound in kept


def test_of_what_cannot_be_mended_the_pieces_that_can_be_read_are() -> None:
    broken = "\n".join(f"    {mark}" for mark in ("1 +", ") (", "] [", "= =", "$ $", "in in") * 6)
    found = tree(f"import torch\ndef f():\n{broken}\nx = torch.zeros(3).cuda()\n")
    kept = "\n".join(ast.unparse(each) for each in found.body)
    assert "import torch" in kept
    assert "x = torch.zeros(3).cuda()" in kept


def test_what_is_in_a_string_of_broken_code_does_not_become_code() -> None:
    code = '"""\nimport torch\nmodel.cuda()\n"""\nx = = 1\ny = 2\n'
    assert "model" not in names(code)
    assert "y" in names(code)


def test_nesting_beyond_reason_is_said() -> None:
    assert tree("x = " + "(" * 5000 + "1" + ")" * 5000 + "\ny = 2\n").notes


def test_every_prefix_of_a_program_gives_a_tree() -> None:
    code = (
        "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
        "        self.a = torch.nn.Linear(3, 4)\n\nn = Net()\n"
    )
    for end in range(1, len(code), 3):
        assert isinstance(tree(code[:end]), Tree)


def test_the_nodes_of_a_tree_are_those_that_python_walks_but_for_loads_and_stores() -> None:
    tree = ast.parse(Path(textwrap.__file__).read_text() + "\nmatch x:\n    case {'a': [1, *b], **c} | A(d=2): pass\n")
    walked = [each for each in ast.walk(tree) if not isinstance(each, ast.expr_context)]
    assert nodes(tree) == walked
