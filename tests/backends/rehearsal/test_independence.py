"""Test that the cloud shares no code with the program whose costs it checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crucible.backends.rehearsal.cloud as package

CLOUD = Path(package.__file__).parent


@pytest.mark.parametrize("path", sorted(CLOUD.glob("*.py")), ids=lambda path: path.name)
def test_it_imports_the_standard_library_and_itself_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "it reaches out of its folder"
            assert node.level == 1 or (node.module or "").partition(".")[0] in sys.stdlib_module_names


def test_it_runs_by_path_where_nothing_else_is_installed() -> None:
    command = [sys.executable, "-I", "-S", str(CLOUD), "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, "--state" in answer.stdout) == (0, True)
