"""`crucible config`: what is in force, who said it, and the user's own file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from crucible.cli.server.config import FILES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "config.toml"


def test_every_setting_is_shown_with_who_said_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_REQUEST_SECONDS", "7")
    out = cli("config", "--origin").out
    assert "request_seconds" in out
    assert "CRUCIBLE_REQUEST_SECONDS" in out
    shown = cli("config", "--json").json
    assert shown["request_seconds"] == {"value": "7.0", "origin": "CRUCIBLE_REQUEST_SECONDS"}
    assert shown["project"] == {"value": None, "origin": "default"}


def test_one_is_set_shown_and_taken_away_and_the_rest_of_the_file_stays(cli: Cli, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nstart_seconds = 20\n")
    for value in ("vision", "speech"):
        assert cli("config", "set", "project", value).code == 0
    assert file.read_text() == '# mine\nstart_seconds = 20\nproject = "speech"\n'
    assert cli("config", "show", "project").out == "speech\n"
    assert cli("config", "unset", "project").code == 0
    assert file.read_text() == "# mine\nstart_seconds = 20\n"
    assert "not set" in cli("config", "unset", "project").err


def test_programs_are_told_what_was_set_and_where(cli: Cli, file: Path) -> None:
    assert cli("config", "set", "token", "crt_x", "--json").json == {"name": "token", "file": str(file), "set": True}
    assert cli("config", "unset", "token", "--json").json == {"name": "token", "file": str(file), "set": False}


def test_what_a_server_reads_counts_from_its_next_start_and_is_said_so(cli: Cli) -> None:
    assert "crucible down, then crucible up" in cli("config", "set", "webhook_hosts", "127.0.0.1").err
    assert "crucible down, then crucible up" in cli("config", "unset", "webhook_hosts").err
    for words in (("set", "project", "vision"), ("unset", "project"), ("unset", "webhook_hosts")):
        assert "crucible down" not in cli("config", *words).err


def test_the_file_is_closed_to_others(cli: Cli, file: Path) -> None:
    cli("config", "set", "token", "a-secret-token")
    assert file.stat().st_mode & 0o777 == 0o600
    assert cli("config", "show", "token").out == "***\n"
    assert "a-secret-token" not in cli("config", "--json").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "request_seconds", "soon"), "cannot be 'soon'"),
        (("set", "server", "not an address"), "http"),
        (("set", "projekt", "x"), "Did you mean 'project'"),
        (("unset", "projekt"), "Did you mean 'project'"),
        (("show", "projekt"), "Did you mean 'project'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(cli: Cli, file: Path, words: tuple[str, ...], said: str) -> None:
    done = cli("config", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert not file.exists()


def test_a_file_with_tables_is_not_touched(cli: Cli, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("[tool]\nx = 1\n")
    assert cli("config", "set", "project", "x").code == 2
    assert file.read_text() == "[tool]\nx = 1\n"


def test_the_secret_at_the_provider_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_OIDC_CLIENT_SECRET", "hunter2-of-the-client")
    assert cli("config", "show", "oidc_client_secret").out == "***\n"
    assert "hunter2" not in cli("config", "--origin").out + cli("config", "--json").out


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
