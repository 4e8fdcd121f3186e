"""The exchange with a host, with this computer's shells and Pythons in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible.backends.ssh.remote import (
    LOADER,
    REMOTE_COMMAND,
    SCRIPT,
    AgentContent,
    BadAnswer,
    Request,
    decode_answer,
    make_mark,
)
from crucible.control.agents.agent_file import build_agent

FOLDER = ".crucible/hosts/node-1/dep-1"
STATE = {"node": "node-1", "deployment_folder": "dep-1"}
Ask = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> AgentContent:
    return AgentContent.read(build_agent(tmp_path_factory.mktemp("agent")).path)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def ask(agent: AgentContent, home: Path, tmp_path: Path) -> Ask:
    """Make a request in a login shell, with this Python as the only one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    for name in ("sh", "uname", "printf"):
        (programs / name).symlink_to(shutil.which(name) or name)

    def make(request: Request, shell: str = "/bin/sh", path: Path = programs) -> dict[str, object]:
        mark = make_mark()
        done = subprocess.run(
            [shell, "-c", REMOTE_COMMAND],
            input=request.encode(agent, mark),
            capture_output=True,
            env={"PATH": str(path), "HOME": str(home)},
            check=False,
        )
        return decode_answer(done.stdout, mark)

    return make


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/usr/bin/fish", "/bin/tcsh"])
def test_every_login_shell_runs_it(ask: Ask, shell: str) -> None:
    if not os.path.exists(shell):
        pytest.skip(f"{shell} is not installed")
    answer = ask(Request("observe", {**STATE, "machines": []}, send_agent=True), shell)
    assert answer == {"machines": {}, "left": 0, "tunnel": False}


def test_the_agents_file_is_asked_for_if_the_host_has_none(ask: Ask) -> None:
    assert ask(Request("observe", STATE, FOLDER)) == {"error": "no_agent"}


def test_the_agents_file_is_kept_only_where_something_starts_from_it(ask: Ask, home: Path) -> None:
    assert "error" not in ask(Request("observe", STATE, FOLDER, send_agent=True))
    assert list(home.iterdir()) == []
    assert "error" not in ask(Request("observe", STATE, FOLDER, keep=True, send_agent=True))
    (kept,) = home.rglob("agent-*.pyz")
    assert kept.parent == home / FOLDER / "agent"
    assert "error" not in ask(Request("observe", STATE, FOLDER))


def test_a_kept_file_that_was_changed_is_not_used(ask: Ask, home: Path) -> None:
    ask(Request("observe", STATE, FOLDER, keep=True, send_agent=True))
    (kept,) = home.rglob("agent-*.pyz")
    kept.write_bytes(kept.read_bytes() + b"x")
    assert ask(Request("observe", STATE, FOLDER)) == {"error": "no_agent"}


def test_a_home_that_cannot_be_written_is_an_answer(ask: Ask, home: Path) -> None:
    (home / ".crucible").write_text("in the way")
    answer = ask(Request("observe", STATE, FOLDER, keep=True, send_agent=True))
    assert (answer["error"], answer["what"]) == ("failed", "The agent's file cannot be kept on the host.")


def test_no_python(ask: Ask, tmp_path: Path) -> None:
    programs = tmp_path / "few"
    programs.mkdir()
    for name in ("sh", "uname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    if Path("/usr/bin/python3").exists():
        pytest.skip("the script looks in /usr/bin too; tests/ssh has a host without")
    assert ask(Request("observe", STATE), path=programs) == {"error": "no_python", "why": ""}


def test_an_old_python_is_named_and_the_next_one_tried(ask: Ask, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    (programs / "python3").unlink()
    (programs / "python3").write_text("#!/bin/sh\nexit 99\n")
    (programs / "python3").chmod(0o755)
    (programs / "python3.12").symlink_to(sys.executable)
    assert "error" not in ask(Request("observe", {**STATE, "machines": []}, send_agent=True))


def test_another_system(ask: Ask, tmp_path: Path) -> None:
    uname = tmp_path / "bin" / "uname"
    uname.unlink()
    uname.write_text("#!/bin/sh\necho FreeBSD\n")
    uname.chmod(0o755)
    assert ask(Request("observe", STATE)) == {"error": "other_system", "why": "FreeBSD"}


@pytest.mark.parametrize("text", ["'; touch x; '", "$(touch x)", "`touch x`", "\n touch x", "\\", '"', "\0"])
def test_no_text_of_a_request_meets_a_shell(ask: Ask, home: Path, text: str) -> None:
    answer = ask(Request("observe", {**STATE, "machines": [text]}, send_agent=True))
    assert answer["machines"] == {text: ["gone", "there is no such machine"]}
    assert list(home.iterdir()) == []


def test_the_script_is_one_line_and_the_loader_runs_on_old_pythons() -> None:
    import ast

    assert SCRIPT.count("\n") == 1
    assert SCRIPT.endswith("\n")
    ast.parse(LOADER, feature_version=(3, 9))


def test_the_answer_is_found_in_what_a_login_shell_prints() -> None:
    mark = make_mark()
    noise = b'Welcome!\n{"error": "no"}\ncrucible-0123 {"error": "forged"}\n'
    assert decode_answer(noise + f"{mark} {json.dumps({'a': 1})}\n".encode() + b"bye\n", mark) == {"a": 1}


@pytest.mark.parametrize("output", [b"", b"This account is not available.\n", b"\xff\xfe", b"MARK {", b"MARK []"])
def test_other_output_is_no_answer(output: bytes) -> None:
    mark = make_mark()
    with pytest.raises(BadAnswer):
        decode_answer(output.replace(b"MARK", mark.encode()), mark)
