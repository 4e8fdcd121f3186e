"""docs/sdk.md and the example of the client do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness import Deployment

PROJECT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?P<kind>python|text)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[re.Match[str]]:
    return list(_BLOCK.finditer((PROJECT / "docs" / "sdk.md").read_text(encoding="utf-8")))


def run(crucible: Deployment, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=crucible.env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page shows."""
    found = tmp_path_factory.mktemp("page")
    for number, block in enumerate(blocks()):
        if block["kind"] == "python":
            (found / (block["name"] or f"example_{number}.py")).write_text(block["text"], encoding="utf-8")
    return found


SHOWN = [
    (block["name"] or f"example_{number}.py", after["text"])
    for number, (block, after) in enumerate(zip(blocks(), blocks()[1:], strict=False))
    if block["kind"] == "python" and after["kind"] == "text"
]


def test_the_page_shows_what_its_examples_print() -> None:
    assert len(SHOWN) >= 7


@pytest.mark.parametrize(("program", "printed"), SHOWN, ids=[name for name, _ in SHOWN])
def test_an_example_of_the_page(program: str, printed: str, crucible: Deployment, folder: Path) -> None:
    assert run(crucible, folder, program) == printed


def test_the_example_script(crucible: Deployment, tmp_path: Path) -> None:
    out = run(crucible, tmp_path, str(PROJECT / "examples" / "sweep_by_hand.py"))
    assert re.search(r"^best: rate 0\.3, error [0-9.e+-]+$", out, re.MULTILINE)
