"""Bad input on the command line: the right exit code, the fix on standard error, and no job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support import MiB
from tests.e2e.terminal import Done, Terminal


@pytest.fixture(autouse=True)
def no_job(terminal: Terminal) -> Iterator[None]:
    before = len(terminal.jobs())
    yield
    assert len(terminal.jobs()) == before


def refused(done: Done, code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_missing_file(terminal: Terminal) -> None:
    terminal.write(training="print(1)")
    refused(terminal.run("run", "trainign.py"), 2, "Fix:", "training.py")
    refused(terminal.run("run", "no-such-folder/x.py"), 2, "Error:")


def test_a_directory_without_an_entry(terminal: Terminal) -> None:
    terminal.write(many__one="pass", many__two="pass")
    (terminal.folder / "bare").mkdir(exist_ok=True)
    refused(terminal.run("run", "many"), 2, "--entry", "one.py", "two.py")
    refused(terminal.run("run", "bare"), 2, "main.py")
    refused(terminal.run("run", "many", "--entry", "thre.py"), 2, "Fix:")
    refused(terminal.run("run", "many", "--entry", "../training.py"), 2, "Fix:")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", ("empty",)), (b"  \n", ("empty",)), (b"print('\xff')", ("UTF-8",)), (b"a\0b", ())],
)
def test_code_that_is_none(terminal: Terminal, content: bytes, words: tuple[str, ...]) -> None:
    (terminal.folder / "odd.py").write_bytes(content)
    refused(terminal.run("run", "odd.py"), 2, "odd.py", "Fix:", *words)


def test_code_on_the_command_line_that_is_none(terminal: Terminal) -> None:
    refused(terminal.run("run", "-c", ""), 2)
    refused(terminal.run("run", "--shell", " "), 2)
    refused(terminal.run("run"), 2, "Fix:")
    refused(terminal.run("run", "x.py", "-c", "pass"), 2, "Fix:")


@pytest.mark.parametrize(
    ("flag", "wrong", "meant"), [("--backend", "locl", "'local'"), ("--tier", "CPU_SMAL", "'CPU_SMALL'")]
)
def test_an_unknown_name(terminal: Terminal, flag: str, wrong: str, meant: str) -> None:
    refused(terminal.run("run", "-c", "pass", flag, wrong), 2, f"Did you mean {meant}?")


@pytest.mark.parametrize(
    "flags",
    [
        ("--cpus", "1e9"),
        ("--cpus", "nan"),
        ("--memory", "lots"),
        ("--memory", "-5G"),
        ("--gpus", "-1"),
        ("--time", "0"),
        ("--grace", "99999h"),
        ("--retries", "-1"),
        ("--kind", "trian"),
        ("--name", "a/b"),
        ("--env", "NOT_SET_ANYWHERE"),
        ("--data", "no-such-data"),
        ("--python", "/no/such/python"),
        ("--no-such-flag",),
    ],
    ids=" ".join,
)
def test_absurd_values(terminal: Terminal, flags: tuple[str, ...]) -> None:
    refused(terminal.run("run", "-c", "pass", *flags), 2)


def test_what_can_be_seen_at_once_starts_no_server(tmp_path: Path) -> None:
    with Terminal(tmp_path) as fresh:
        for flags in (("missing.py",), ("-c", "pass", "--cpus", "nan"), ("-c", "pass", "--tier", "HUGE")):
            refused(fresh.run("run", *flags), 2)
        assert not fresh.home.exists()


def test_more_than_there_is(terminal: Terminal) -> None:
    refused(terminal.run("run", "-c", "pass", "--cpus", "1000"), 6, "this computer has", "Fix:")
    refused(terminal.run("run", "-c", "pass", "--tier", "GPU_LARGE"), 6, "GPU", "Fix:")


def test_a_bundle_over_the_limit(terminal: Terminal) -> None:
    main = terminal.write(big__main="pass")
    (main.parent / "weights.bin").write_bytes(b"x" * 2 * MiB)
    done = terminal.run("run", "big", env={"CRUCIBLE_BUNDLE_LIMIT": "1M"})
    refused(done, 2, "weights.bin", ".crucibleignore", "--data")


def test_a_link_out_of_the_directory(terminal: Terminal) -> None:
    main = terminal.write(linked__main="pass")
    (main.parent / "out").unlink(missing_ok=True)
    os.symlink("/etc/passwd", main.parent / "out")
    refused(terminal.run("run", "linked"), 2, "out", "Fix:")


def test_a_job_file_that_is_not_right(terminal: Terminal) -> None:
    for text, word in (
        ("script: [", "YAML"),
        ("scrpit: train.py", "script"),
        ("code: pass\nshell: ls", "exactly one"),
    ):
        (terminal.folder / "bad.yaml").write_text(text)
        refused(terminal.run("run", "bad.yaml"), 2, word, "Fix:")
    refused(terminal.run("run", "missing.yaml"), 2, "missing.yaml")


def test_a_git_address_that_is_not_there(terminal: Terminal) -> None:
    refused(terminal.run("run", f"file://{terminal.folder}/no-such-repo.git"), 2)


def test_a_wrong_token(terminal: Terminal) -> None:
    terminal.ok("up")
    env = {"CRUCIBLE_SERVER": terminal.crucible.discovery["url"], "CRUCIBLE_TOKEN": "wrong"}
    refused(terminal.run("run", "-c", "pass", env=env), 4, "Fix:")
    refused(terminal.run("jobs", env=env), 4, "Fix:")


def test_a_named_server_that_is_down(terminal: Terminal) -> None:
    refused(terminal.run("jobs", "--server", "http://127.0.0.1:9"), 9, "Fix:", "127.0.0.1:9")
    refused(terminal.run("run", "-c", "pass", env={"CRUCIBLE_SERVER": "http://127.0.0.1:9"}), 9, "Fix:")
    refused(terminal.run("up", "--server", "http://127.0.0.1:9"), 2, "Fix:")
    refused(terminal.run("jobs", "--server", "nonsense"), 2, "http://")


def test_a_job_that_is_not_there(terminal: Terminal) -> None:
    for command in ("status", "logs", "cancel", "download"):
        refused(terminal.run(command, "zzzzzz"), 3, "Fix:")


def test_errors_as_json(terminal: Terminal) -> None:
    done = terminal.run("run", "-c", "pass", "--tier", "CPU_SMAL", "--json")
    refused(done, 2)
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("unknown_name", 2)
    assert "CPU_SMALL" in error["fix"]
    usage = terminal.run("run", "--no-such-flag", "--json")
    assert (usage.returncode, json.loads(usage.stderr)["error"]["code"]) == (2, "bad_input")
