from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer
from tests.control.harness import new_id

from crucible import __version__
from crucible.cli.command_table import COMMANDS, CommandRow, load_command
from crucible.core.ids import Prefix

LEAVES = [row for group in COMMANDS for row in (group.rows or (group,))]

HEAVY = ("httpx2", "rich", "pydantic", "sqlalchemy", "websockets", "fastapi", "nbformat", "yaml")


@pytest.mark.quiet
def test_help_is_instant_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom crucible.cli.main import run\nassert run(['--help']) == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.stderr.strip() == "[]"
    assert spent < 0.3  # about 0.08 on an idle machine; the bound leaves room for a busy one
    for row in COMMANDS:
        assert row.name in done.stdout


@pytest.mark.parametrize(("more", "told"), [((), False), (("--debug",), True)], ids=["usual", "debug"])
def test_a_command_that_fails_tells_it_and_its_code(more: tuple[str, ...], told: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crucible", "status", "--server", "http://127.0.0.1:1", *more]
    environ = {**os.environ, "CRUCIBLE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (1 if told else 9)
    assert ("Traceback" in done.stderr) is told
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["config", "show"]])
def test_nothing_is_said_where_nobody_reads_any_more(words: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as out:
        command = [sys.executable, "-m", "crucible", *words]
        environ = {**os.environ, "CRUCIBLE_HOME": str(tmp_path), "PYTHONUNBUFFERED": ""}
        done = subprocess.run(command, env=environ, stdout=out, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crucible", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"crucible {__version__}\n"


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_has_help_with_the_shared_options(cli: Cli, row: CommandRow) -> None:
    ran = cli(row.name, "--help")
    assert ran.code == 0
    assert f"crucible {row.name}" in ran.out
    for option in ("--server", "--json", "--quiet", "--debug"):
        assert option in ran.out


@pytest.mark.parametrize("row", LEAVES, ids=lambda row: row.target)
def test_every_row_names_a_function_that_says_what_it_does(row: CommandRow) -> None:
    module, _, function = row.target.partition(":")
    assert getattr(importlib.import_module(f"crucible.cli.{module}"), function).__doc__
    assert load_command(row).name == row.name


@pytest.mark.parametrize("words", [("train", "--model"), ("run", "x.py", "--name"), ("tokens", "create", "--days")])
def test_an_option_without_its_value_names_the_help_of_its_own_command(cli: Cli, words: tuple[str, ...]) -> None:
    ran = cli(*words)
    path = " ".join(word for word in words[:2] if word.isalpha())
    assert ran.code == 2
    assert f"Fix: See `crucible {path} --help`." in ran.err


def test_no_command_shows_the_help_as_a_usage_error(cli: Cli) -> None:
    assert cli().code == 2


def test_a_mistyped_command_is_told_with_the_nearest(cli: Cli) -> None:
    ran = cli("stauts")
    assert ran.code == 2
    assert "Did you mean 'status'" in ran.err


@pytest.mark.parametrize(
    ("words", "closest"),
    [
        (("cancel", "last", "--waits", "5s"), "--wait"),
        (("jobs", "--iknd", "train"), "--kind"),
        (("catalog", "list", "--memroy", "4G"), "--memory"),
        (("run", "x.py", "--memmory", "4G"), "--memory"),
    ],
)
def test_a_mistyped_option_is_told_with_the_nearest(cli: Cli, words: tuple[str, ...], closest: str) -> None:
    assert f"Did you mean {closest}?" in cli(*words).err


def test_usage_errors_are_2_also_as_json(cli: Cli) -> None:
    assert cli("jobs", "--limit", "many").code == 2
    ran = cli("jobs", "--limit", "many", "--json")
    assert ran.code == 2
    assert json.loads(ran.err)["error"]["code"] == "bad_input"


@pytest.mark.enable_socket
def test_shared_options_stand_before_or_after_the_command(cli: Cli, real: RealServer) -> None:
    job = real.start()
    assert cli("--json", "status").json == cli("status", "--json").json
    assert cli("-q", "status").out == cli("status", "-q").out == f"{job.id}\n"


@pytest.mark.enable_socket
def test_the_flag_names_the_server(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_SERVER", "http://127.0.0.1:9")
    assert cli("jobs").code == 9
    assert cli("jobs", "--server", real.url).code == 0
    assert cli("--server", real.url, "jobs").code == 0


@pytest.mark.enable_socket
def test_errors_say_what_why_and_the_fix(cli: Cli, real: RealServer) -> None:
    ran = cli("status", "nosuch")
    assert ran.code == 3
    assert ran.out == ""
    assert ran.err == "Error: There is no job 'nosuch'.\n  Fix: `crucible jobs` lists them.\n"


@pytest.mark.enable_socket
def test_errors_as_json(cli: Cli, real: RealServer) -> None:
    ran = cli("status", "nosuch", "--json")
    told = json.loads(ran.err)["error"]
    assert (ran.code, ran.out) == (3, "")
    assert (told["code"], told["what"], told["exit_code"]) == ("not_found", "There is no job 'nosuch'.", 3)


@pytest.mark.enable_socket
def test_a_wrong_token_is_exit_code_4(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_TOKEN", "wrong")
    ran = cli("jobs")
    assert ran.code == 4
    assert "Log in again: `crucible login URL`" in ran.err


@pytest.mark.enable_socket
def test_a_named_server_that_is_down_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    ran = cli("--server", "http://127.0.0.1:9", "jobs")
    assert ran.code == 9
    assert not (tmp_path / "home").exists()


def test_tracebacks_only_with_debug(cli: Cli) -> None:
    from crucible.core.errors import BadInput

    with pytest.raises(BadInput):
        cli("run", "nosuch.py", "--debug")


def test_inside_a_job_nothing_is_started(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CRUCIBLE_JOB_ID", new_id(Prefix.JOB, 1))
    ran = cli("status")
    assert ran.code == 9
    assert "Inside a job" in ran.err
    assert not (tmp_path / "home" / "server.log").exists()
