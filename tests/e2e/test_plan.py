"""`crucible plan` and `run --dry-run` at a real terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.e2e.terminal import Terminal


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("plan"), CRUCIBLE_BACKENDS="local,rehearsal") as terminal:
        yield terminal


def test_a_plan_is_a_table_of_what_there_is(terminal: Terminal) -> None:
    done = terminal.run("plan", "--code", "print(1)", "--backend", "rehearsal,local", "--spot", "--time", "1h")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("→  rehearsal")
    assert "/h" in lines[1]
    assert any("this computer" in line for line in lines)
    assert "Nothing was submitted" in done.stderr
    assert len(lines) < 15


def test_a_dry_run_ends_with_the_call_that_would_be_sent(terminal: Terminal) -> None:
    out = terminal.ok("run", "--code", "print(1)", "--dry-run")
    call = json.loads(out[out.index("{") :])
    assert (call["backend"], call["token"][:4]) == ("local", "mch-")
    assert json.loads(terminal.ok("jobs", "--json"))["items"] == []


def test_as_json_it_is_all_there(terminal: Terminal) -> None:
    plan = json.loads(terminal.ok("plan", "--code", "print(1)", "--json"))
    assert plan["chosen"]["backend"] == "local"
    assert {offer["backend"] for offer in plan["offers"]} == {"local", "rehearsal"}
    assert all(offer["why"] for offer in plan["rejected"])


def test_what_nothing_can_hold(terminal: Terminal) -> None:
    done = terminal.run("plan", "--code", "1", "--gpus", "64")
    assert (done.returncode, "asks for 64 GPUs" in done.stderr) == (6, True)
