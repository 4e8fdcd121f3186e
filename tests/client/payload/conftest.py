from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible.client.payload import CodeSource
from crucible.client.request.pythons import SubmitHost

Ask = Callable[..., CodeSource]
Git = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def ask(folder: Path, tmp_path: Path) -> Ask:
    """Sources from a shell in `folder` that has one Python."""

    def make(home: Path = tmp_path, standing: Path = folder, **changes: Any) -> CodeSource:
        environ = {"PATH": "/usr/bin", "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
        host = SubmitHost(environ, standing, is_program=lambda path: path == "/usr/bin/python3")
        return CodeSource(host=host, scratch=tmp_path / "scratch", **changes)

    return make


@pytest.fixture
def git(folder: Path) -> Git:
    """Runs git in `folder`, as somebody."""

    def run(*arguments: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", *who, *arguments]
        return subprocess.run(
            command, cwd=folder, env=environ, check=True, capture_output=True, text=True
        ).stdout.strip()

    return run


def names(payload: Any) -> list[str]:
    return sorted(entry.name for entry in payload.entries)
