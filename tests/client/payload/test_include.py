"""--include sends more files with every payload."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import Payload, load_code
from crucible.core.errors import BadInput

KINDS = ("script", "directory", "notebook", "code", "shell", "git")
Make = Callable[..., Payload]


@pytest.fixture
def make(folder: Path, ask: Ask, git: Git, tmp_path: Path) -> Make:
    """Payloads of one folder: a git work tree that ignores `data`."""
    cell = {"cell_type": "code", "source": "print(1)", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (folder / "study.ipynb").write_text(json.dumps(notebook))
    (folder / "train.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("data/\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (folder / "data").mkdir()
    for name in ("a.bin", "b.bin", ".env"):
        (folder / "data" / name).write_text("x")
    (tmp_path / "scratch").mkdir()

    def load(kind: str, *include: str) -> Payload:
        targets = {"script": "train.py", "directory": ".", "notebook": "study.ipynb", "git": folder.as_uri()}
        kinds = {"code": "code", "shell": "shell"}
        source = ask(include=include, target=targets.get(kind, "print(1)"), kind=kinds.get(kind, "path"))
        return load_code(replace(source, scratch=Path(tempfile.mkdtemp(dir=tmp_path / "scratch"))))

    return load


@pytest.mark.parametrize("kind", KINDS)
def test_it_adds_what_git_ignores(make: Make, kind: str) -> None:
    assert {"data/a.bin", "data/b.bin"} <= set(names(make(kind, "data")))
    assert "data/a.bin" in names(make(kind, "data/a.*"))


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_may_overlap(make: Make, kind: str) -> None:
    found = names(make(kind, "data", "data/*.bin", "data/a.bin", "./data/"))
    assert len(found) == len(set(found))
    assert {"data/a.bin", "data/b.bin"} <= set(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["nosuch", "data/*.txt", "../*"])
def test_one_that_matches_nothing_is_an_error(make: Make, kind: str, pattern: str) -> None:
    with pytest.raises(BadInput, match="--include"):
        make(kind, "data", pattern)


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_comes_only_by_its_name(make: Make, kind: str) -> None:
    without = make(kind, "data")
    assert "data/.env" not in names(without)
    assert any("data/.env is not sent" in text for text in without.left_out)
    assert "data/.env" in names(make(kind, "data/.env"))
