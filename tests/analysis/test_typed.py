"""Programs while they are typed: what was said of the whole program holds where the lines that show it stand."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crucible.analysis import Sources, analyse
from crucible.analysis.knowledge.frameworks import frameworks_of_module
from crucible.core.routing.profile import Profile

Cut = Callable[[str, random.Random], Iterator[tuple[str, set[int]]]]
HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "benchmarks" / "analysis" / "published"
PROGRAMS = sorted(
    path
    for folder in (HERE / "typed_programs", HERE / "keras_programs", HERE / "flax_programs", PUBLISHED)
    for path in folder.glob("*.py")
)


def profile(text: str) -> Profile:
    return analyse(Sources({"a.py": text.encode()}, "a.py"))


def statements(text: str) -> list[ast.stmt]:
    """Those that hold no others, each with its lines."""
    every = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return [node for node in every if not hasattr(node, "body")]


def at_the_end(text: str, chance: random.Random) -> Iterator[tuple[str, set[int]]]:
    """The program up to some letter, and the lines that are not there whole."""
    count = len(text.splitlines())
    for _ in range(10):
        cut = text[: chance.randrange(1, len(text))]
        yield cut, set(range(cut.count("\n") + 1, count + 1))


def in_the_middle(text: str, chance: random.Random) -> Iterator[tuple[str, set[int]]]:
    """The program with one line that ends too early."""
    lines = text.splitlines(keepends=True)
    for _ in range(6):
        at = chance.randrange(len(lines))
        short = lines[at][: chance.randrange(len(lines[at]))].rstrip("\n")
        yield "".join([*lines[:at], f"{short}\n", *lines[at + 1 :]]), {at + 1}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("cut", [at_the_end, in_the_middle])
def test_what_still_stands_is_still_known(path: Path, cut: Cut) -> None:
    text = path.read_text(encoding="utf-8")
    whole, inner = profile(text), statements(text)
    spans = [set(range(each.lineno, (each.end_lineno or each.lineno) + 1)) for each in inner]
    imports = [each for each in inner if isinstance(each, ast.Import | ast.ImportFrom)]
    shown = {line.line for line in whole.gpu.evidence}
    for typed, gone in cut(text, random.Random(path.name)):
        found = profile(typed)
        stand = [each for each in imports if not gone & set(range(each.lineno, (each.end_lineno or 0) + 1))]
        assert frameworks(stand) <= set(found.frameworks.value or ()), typed[-200:]
        if len(stand) == len(imports) and not any(span & gone and span & shown for span in spans) and not shown & gone:
            assert found.gpu.value is whole.gpu.value, typed[-200:]


def frameworks(imports: list[ast.stmt]) -> set[str]:
    modules = [
        name
        for each in imports
        for name in (
            [each.module or ""]
            if isinstance(each, ast.ImportFrom)
            else [alias.name for alias in each.names]
            if isinstance(each, ast.Import)
            else []
        )
    ]
    return {name for module in modules for name in frameworks_of_module(module)}


def test_there_are_enough_programs_to_tell() -> None:
    assert len(PROGRAMS) >= 30


def test_words_of_a_text_that_is_being_typed_are_no_code() -> None:
    code = 'import json\n\ndef f():\n    """Loads it.\n\n    Needs a GPU, as follows:\n\nimport torch\nand more words\n'
    found = profile(code)
    assert found.frameworks.value == ()


@pytest.mark.parametrize(
    "code",
    [
        "from transformers import (",
        "from transformers import (\n    AutoModel,\n    AutoTok",
        "from transformers import",
        "import os\nfor name in range(3)\n    print(name)\n    print(name)\nimport transformers\n",
    ],
)
def test_an_import_counts_as_soon_as_it_names_the_package(code: str) -> None:
    assert profile(code).frameworks.value == ("transformers",)


def test_the_head_of_a_function_that_is_being_typed_ends_nothing() -> None:
    code = "import torch\n\ndef net(n\n    return torch.nn.Linear(n, n)\n\nnet(3).to('cuda')\n"
    assert profile(code).gpu.value == "required"
