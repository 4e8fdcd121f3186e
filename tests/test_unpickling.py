"""Bytes that came from elsewhere are never unpickled: nobody but a template, which is a job of its own, could."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "crucible"
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "torch"}
WRITES = {"dumps"}
"""Who takes nothing else from one of them, reads nothing with it."""
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.name not in ("templates", "__pycache__"))


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level and not _only_writes(node):
            yield node.module.partition(".")[0]


def _only_writes(node: ast.ImportFrom) -> bool:
    return {alias.name for alias in node.names} <= WRITES


def files(room: str) -> list[Path]:
    path = PACKAGE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_that_unpickles_is_imported(room: str) -> None:
    found = {str(path.relative_to(PACKAGE)): set(imported(path)) & UNPICKLERS for path in files(room)}
    assert {path: names for path, names in found.items() if names} == {}


def test_an_import_is_seen_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text("import os\ndef f():\n    from pickle import loads\n    import torch.nn as nn\n")
    assert list(imported(path)) == ["os", "pickle", "torch"]


def test_who_only_writes_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text("from marshal import dumps\nfrom pickle import dumps, loads\nimport marshal\n")
    assert list(imported(path)) == ["pickle", "marshal"]
