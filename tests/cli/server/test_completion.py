"""`crucible completion`: lines that a shell understands, and what they answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from crucible.cli.server.completion import FILES


@pytest.mark.parametrize("shell", FILES)
def test_each_shell_gets_its_own(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)
    assert ran.code == 0
    assert f"_CRUCIBLE_COMPLETE=complete_{shell}" in ran.out
    assert f"crucible completion {shell} >> {FILES[shell]}" in ran.err
    told = cli("completion", shell, "--json").json
    assert (told["shell"], told["file"], told["script"]) == (shell, FILES[shell], ran.out.rstrip("\n"))


def test_unless_given_it_is_the_users_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert "complete_zsh" in cli("completion").out


@pytest.mark.parametrize(("given", "own"), [("basch", "/bin/bash"), (None, "/bin/tcsh"), (None, "")])
def test_a_shell_that_it_does_not_know(cli: Cli, monkeypatch: pytest.MonkeyPatch, given: str | None, own: str) -> None:
    monkeypatch.setenv("SHELL", own)
    ran = cli("completion", *([given] if given else []))
    assert ran.code == 2
    assert "There is no shell" in ran.err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "found"), [(["sta"], {"status"}), (["run", "--fall"], {"--fallback"}), (["users", "pass"], {"password"})]
)
def test_bash_completes_with_it(cli: Cli, tmp_path: Path, words: list[str], found: set[str]) -> None:
    command = tmp_path / "crucible"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m crucible "$@"\n')
    command.chmod(0o755)
    script = cli("completion", "bash").out
    asked = f"COMP_WORDS=(crucible {' '.join(words)}); COMP_CWORD={len(words)}; _crucible_completion crucible"
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", f'{script}\n{asked}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(ran.stdout.split()) == found
