"""Out of memory: the program goes first, and is told apart from a runner that the kernel took."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.faults.counting_job import Counting
from tests.harness import Deployment, View, alive, python, until
from tests.scale import Record

MiB = 1024**2
GREEDY = "held = []\nwhile True: held.append(bytearray(16 * 1024 * 1024))"


def test_who_takes_too_much_is_stopped_and_told_how_to_go_on(
    crucible: Deployment, tmp_path: Path, record: Record
) -> None:
    counting = Counting(crucible, tmp_path / "counting")
    view = crucible.wait(crucible.submit(python(GREEDY, resources={"cpus": 0.4, "memory_bytes": 128 * MiB})))
    assert (view["status"], view["attempt"]) == ("failed", 1), "it would only happen again"
    assert view["reason"]["code"] == "out_of_memory"
    assert "--memory" in view["reason"]["advice"]
    counting.goes_on()
    ended, lines = counting.let_go()
    assert (ended["status"], ended["attempt"], counting.left_out(lines)) == ("completed", counting.attempt, 0)
    crucible.nothing_left()
    record("out of memory", who="program")


def test_the_kernel_takes_the_program_before_our_own(crucible: Deployment, tmp_path: Path) -> None:
    if not Path("/proc/self/oom_score_adj").exists():
        pytest.skip("only Linux says whom it would take")
    counting = Counting(crucible, tmp_path / "counting")
    assert crucible.server is not None
    ours = [crucible.server.pid, *crucible.hosts(), _runner(crucible)]
    assert _score(_program(crucible, counting.job)) > max(map(_score, ours))
    counting.let_go()


def test_a_runner_that_was_taken_costs_an_attempt_and_no_second_program(
    crucible: Deployment, tmp_path: Path, record: Record
) -> None:
    """As the kernel would: the runner alone, without a word. Its program has nobody to report on it any more."""
    counting = Counting(crucible, tmp_path / "counting")
    program = _program(crucible, counting.job)
    os.kill(_runner(crucible), signal.SIGKILL)
    again = until(lambda: _attempt(crucible, counting.job, counting.attempt + 1), 120, "another attempt")
    assert not alive(program), "the first is over before the second begins"
    assert alive(again["facts"]["started"]["pid"])
    view, _ = counting.let_go()
    first, second = view["attempts"][-2:]
    assert (view["status"], first["reason"], second["reason"]) == ("completed", "runner_lost", "completed")
    crucible.nothing_left()
    record("out of memory", who="runner", attempts=view["attempt"])


def _attempt(crucible: Deployment, job: str, number: int) -> View | None:
    last = crucible.job(job)["attempts"][-1]
    return dict(last) if last["number"] == number and last["state"] == "running" else None


def _program(crucible: Deployment, job: str) -> int:
    return int(crucible.phase(job, "running")["attempts"][-1]["facts"]["started"]["pid"])


def _runner(crucible: Deployment) -> int:
    (path,) = crucible.home.glob("machines/*/attempts/*/runner.json")
    return int(json.loads(path.read_bytes())["pid"])


def _score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
