"""Secrets as people use them: set once, named by jobs, seen by nobody, under keys that change."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.terminal import Done, Terminal
from tests.harness import Deployment, shell, until

VALUE = "hf_0123456789abcdef"
SHOW = "import os; print(len(os.environ['TOKEN']), os.environ['TOKEN'])"
POINTS = ("secrets.key_added", "secrets.before_commit", "secrets.after_commit")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("secrets"), CRUCIBLE_SHARED_COMPUTER="true") as terminal:
        terminal.crucible.start()
        terminal.ok("secrets", "set", "TOKEN", input=VALUE + "\n")
        yield terminal


def test_a_job_gets_what_nobody_sees(terminal: Terminal) -> None:
    done = terminal.run("run", "--code", SHOW, "--secret", "TOKEN")
    assert done.returncode == 0, done.stderr
    assert f"{len(VALUE)} ***" in done.stdout
    assert VALUE not in done.stdout + done.stderr + terminal.ok("logs", "last") + terminal.ok(
        "status", "last", "--json"
    )


def test_the_variable_may_have_another_name_than_the_secret(terminal: Terminal) -> None:
    done = terminal.run(
        "run", "--shell", 'test "$MY_KEY" = ' + VALUE + ' && test -z "$TOKEN"', "--secret", "MY_KEY=TOKEN"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("secrets", ["[TOKEN]", "{TOKEN: TOKEN}"])
def test_a_job_file_names_them(terminal: Terminal, secrets: str) -> None:
    (terminal.folder / "job.yaml").write_text(f"code: |\n  {SHOW}\nsecrets: {secrets}\n")
    assert f"{len(VALUE)} ***" in terminal.ok("run", "job.yaml")


def test_the_list_shows_names_when_and_by_whom(terminal: Terminal) -> None:
    shown = terminal.ok("secrets")
    assert "TOKEN" in shown
    assert "owner" in shown
    listed = terminal.json("secrets")
    assert ("TOKEN", "owner") in [(item["name"], item["updated_by"]) for item in listed["items"]]
    assert "TOKEN" in terminal.ok("secrets", "list", "--quiet").split()
    assert VALUE not in shown + json.dumps(listed)


def test_one_that_is_not_there_is_told_before_anything_runs(terminal: Terminal) -> None:
    before = len(terminal.jobs())
    done = terminal.run("run", "--shell", "true", "--secret", "NOPE")
    assert done.returncode == 3
    assert "crucible secrets set NOPE --project default" in done.stderr
    assert len(terminal.jobs()) == before


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("set", "BAD NAME"), VALUE, "is not a valid secret name"),
        (("set", "EMPTY"), "", "Standard input is empty"),
        (("set", "SHORT"), "abc", "3 bytes"),
        (("remove", "NOPE", "--yes"), "", "no secret 'NOPE'"),
        (("set", "TOKEN", "--project", "nowhere"), VALUE, "no project 'nowhere'"),
    ],
)
def test_what_goes_wrong_says_how_to_mend_it(terminal: Terminal, words: tuple[str, ...], given: str, said: str) -> None:
    done = terminal.run("secrets", *words, input=given)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert VALUE not in done.stdout + done.stderr


def test_resume_and_rerun_use_the_value_of_that_moment(terminal: Terminal) -> None:
    terminal.ok("secrets", "set", "CHANGING", input="the first value")
    script = 'test "$CHANGING" = "the second value"'
    job = terminal.run("run", "--shell", script, "--secret", "CHANGING")
    assert job.returncode == 1
    terminal.ok("secrets", "set", "CHANGING", input="the second value")
    assert terminal.run("rerun", "last").returncode == 0
    failed = next(view["id"] for view in terminal.jobs() if view["status"] == "failed")
    assert terminal.run("resume", failed).returncode == 0
    terminal.ok("secrets", "remove", "CHANGING", "--yes")
    gone = terminal.run("rerun", failed)
    assert gone.returncode == 3
    assert "crucible secrets set CHANGING" in gone.stderr


def test_a_key_of_several_lines_comes_whole_and_stays_hidden(terminal: Terminal) -> None:
    key = "-----BEGIN KEY-----\nMIIBVAIBADANBgkqhkiG\n9w0BAQEFAASCAT4wggE6\n-----END KEY-----\n"
    terminal.ok("secrets", "set", "PEM", input=key)
    done = terminal.run("run", "--code", "import os; print(os.environ['PEM']); print('end')", "--secret", "PEM")
    assert done.stdout.splitlines()[-5:] == ["***"] * 4 + ["end"]


def test_members_use_and_admins_set(terminal: Terminal) -> None:
    terminal.ok("projects", "add", "vision")
    for name, role in (("ada", "member"), ("bob", "admin")):
        terminal.ok("users", "add", name)
        terminal.ok("projects", "grant", "vision", name, role)
    ada, bob = (terminal.ok("tokens", "create", "t", "--user", name, *SCOPES).strip() for name in ("ada", "bob"))
    assert as_user(terminal, ada, "secrets", "set", "TOKEN", given=VALUE).returncode == 4
    set_by_bob = as_user(terminal, bob, "secrets", "set", "TOKEN", given=VALUE)
    assert "TOKEN is set in vision" in set_by_bob.stderr
    assert as_user(terminal, ada, "secrets", "--quiet").stdout.split() == ["TOKEN"]
    done = as_user(terminal, ada, "run", "--code", SHOW, "--secret", "TOKEN")
    assert f"{len(VALUE)} ***" in done.stdout
    assert as_user(terminal, ada, "secrets", "rotate").returncode == 4
    deeds = terminal.json("audit", "--project", "vision")["items"]
    assert ("bob", "secret.set", "TOKEN") in [(deed["user"], deed["action"], deed["target"]) for deed in deeds]


SCOPES = ("--scope", "read", "--scope", "write", "--scope", "manage")


def as_user(terminal: Terminal, token: str, *words: str, given: str | None = None) -> Done:
    url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
    return terminal.run(*words, env={"CRUCIBLE_SERVER": url, "CRUCIBLE_TOKEN": token}, input=given)


def test_keys_are_rotated_while_jobs_use_them(terminal: Terminal) -> None:
    keys = terminal.home / "secrets.keys"
    before = keys.read_text()
    assert keys.stat().st_mode & 0o777 == 0o600
    assert terminal.json("secrets", "rotate")["secrets"] >= 1
    assert keys.read_text() != before
    assert f"{len(VALUE)} ***" in terminal.ok("run", "--code", SHOW, "--secret", "TOKEN")


@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_dies_while_it_rotates_loses_nothing(tmp_path: Path, point: str) -> None:
    with Deployment(tmp_path) as crucible:
        with crucible.client() as client:
            client.put("/api/v1/projects/default/secrets/kept", json={"value": VALUE}).raise_for_status()
        old = (crucible.home / "secrets.keys").read_text()
        crucible.kill()
        crucible.start(CRUCIBLE_CRASHPOINT=point)
        crucible.cli("secrets", "rotate", "--server", crucible.discovery["url"], seconds=60)
        server = crucible.server
        assert server is not None
        until(lambda: server.poll() is not None, 20, "the server to die")
        assert old.strip() in (crucible.home / "secrets.keys").read_text()
        crucible.start()
        keys = (crucible.home / "secrets.keys").read_text().split()
        assert len(keys) == 1
        assert keys != old.split()
        job = crucible.submit(shell(f'test "$KEPT" = {VALUE}', secrets={"KEPT": "kept"}))
        assert crucible.wait(job)["status"] == "completed"


def test_at_a_terminal_the_value_is_asked_for_twice_and_not_shown(terminal: Terminal) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "crucible", "secrets", "set", "TYPED"]
    env = terminal.crucible.env
    with subprocess.Popen(command, env=env, stdin=its, stdout=its, stderr=its, start_new_session=True) as asked:
        os.close(its)
        shown = b""
        for prompt in (b"Value of TYPED", b"Repeat for confirmation"):
            while prompt not in shown:
                shown += os.read(ours, 4096)
            until(
                lambda: not termios.tcgetattr(ours)[3] & termios.ECHO, 10, "the terminal to stop showing what is typed"
            )
            os.write(ours, b"typed-by-hand\n")
        with contextlib.suppress(OSError):  # the other side is closed
            while piece := os.read(ours, 4096):
                shown += piece
        assert asked.wait(30) == 0
    os.close(ours)
    assert b"TYPED is set in default" in shown
    assert b"typed-by-hand" not in shown
    check = 'test "$TYPED" = typed-by-hand'
    assert terminal.run("run", "--shell", check, "--secret", "TYPED").returncode == 0
