"""`make prove` sets up, then runs the rows it was given, and ends as they do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


class Tree:
    """A project whose set-up and Python only say that they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "scripts").mkdir()
        (root / ".venv" / "bin").mkdir(parents=True)
        for name in ("scripts/prove.sh", "scripts/lib.sh", "Makefile"):
            shutil.copy(PROJECT / name, root / name)
        with (root / "scripts" / "lib.sh").open("a") as file:
            file.write("apt_install() { return 1; }\n")

    def script(self, name: str, *lines: str) -> None:
        path = self.root / name
        path.write_text("\n".join(["#!/usr/bin/env bash", *lines, ""]))
        path.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "CRUCIBLE_HOME": "/somewhere"}
        return subprocess.run(words, cwd=self.root, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.script("scripts/setup.sh", 'echo "set up $*"')
    tree.script(".venv/bin/python", 'echo "run $*, home ${CRUCIBLE_HOME:-none}"', "exit 3")
    return tree


def test_rows_are_run_after_the_set_up_and_their_end_is_passed_on(tree: Tree) -> None:
    done = tree.run("scripts/prove.sh", "kill9", "simulation")
    assert done.stdout == "set up dev\nrun -m benchmarks.prove kill9 simulation, home none\n"
    assert done.returncode == 3


def test_nothing_is_run_where_the_set_up_fails(tree: Tree) -> None:
    tree.script("scripts/setup.sh", "exit 7")
    done = tree.run("scripts/prove.sh")
    assert (done.stdout, done.returncode) == ("", 7)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("given", "rows"), [((), ""), (("ROWS=kill9 simulation",), " kill9 simulation")])
def test_make_hands_on_the_rows(tree: Tree, given: tuple[str, ...], rows: str) -> None:
    assert f"run -m benchmarks.prove{rows}, home" in tree.run("make", "prove", *given).stdout
