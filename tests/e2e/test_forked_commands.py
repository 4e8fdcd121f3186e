"""A command that was forked does what one in a new interpreter does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.harness import Deployment


@pytest.fixture
def idle_deployment(tmp_path: Path) -> Deployment:
    """Nothing runs in it."""
    return Deployment(tmp_path, {"CRUCIBLE_TOKEN": "from the environment"})


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("--help",),
        ("stauts",),
        ("jobs", "--no-such-option"),
        ("config", "--json"),
        ("init", "--help"),
        ("run", "nothing-of-that-name.py"),
        ("secrets", "set"),
    ],
    ids=" ".join,
)
def test_it_says_and_returns_the_same(idle_deployment: Deployment, tmp_path: Path, words: tuple[str, ...]) -> None:
    forked, new = (_done(idle_deployment, tmp_path, words, forks) for forks in (True, False))
    assert forked == new


def _done(idle_deployment: Deployment, folder: Path, words: tuple[str, ...], forks: bool) -> tuple[int, str, str]:
    assert idle_deployment.commands is not None
    if forks:
        done = idle_deployment.commands.run(words, idle_deployment.env, 60, input="typed\n", cwd=str(folder))
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Deployment, "commands", None)
            done = idle_deployment.command(words, idle_deployment.env, 60, input="typed\n", cwd=str(folder))
    return done.returncode, done.stdout, done.stderr


def test_one_that_takes_too_long_is_ended(idle_deployment: Deployment) -> None:
    assert idle_deployment.commands is not None
    with pytest.raises(subprocess.TimeoutExpired):
        idle_deployment.commands.run(("--version",), idle_deployment.env, 0.0)
    assert idle_deployment.commands.run(("--version",), idle_deployment.env, 60).returncode == 0
