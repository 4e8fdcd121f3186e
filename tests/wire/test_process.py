"""A process is known by its pid and its start time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from tests.harness import until

from crucible.wire.process import Process, find_process, parse_stat, start_time, this_process

WAIT = "import signal; print(flush=True); signal.pause()"


@contextlib.contextmanager
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said it is ready."""
    with subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def named(pid: int) -> Process:
    found = find_process(pid)
    assert found is not None
    return found


def test_this_one_is_alive() -> None:
    assert named(os.getpid()) == this_process()
    assert this_process().alive


def test_the_same_pid_at_another_time_is_another_process() -> None:
    assert not Process(os.getpid(), "1").alive


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_there_is_no_such_pid(pid: int) -> None:
    assert start_time(pid) is None
    assert find_process(pid) is None


def test_a_zombie_is_not_alive() -> None:
    with waiting() as started:
        process = named(started.pid)
        started.kill()
        until(lambda: not process.alive)
        assert started.returncode is None, "nobody has waited for it yet"


def test_a_signal_reaches_it() -> None:
    with waiting() as started:
        named(started.pid).send(SIGTERM)
        assert started.wait(30) == -SIGTERM


def test_a_signal_for_another_process_with_the_same_pid_is_not_sent() -> None:
    with waiting() as started:
        Process(started.pid, "1").send(SIGKILL)
        started.terminate()
        assert started.wait(30) == -SIGTERM


def test_a_signal_for_a_process_that_has_ended_is_nothing() -> None:
    with waiting() as started:
        process = named(started.pid)
        started.kill()
        started.wait()
    process.send(SIGKILL)


@pytest.mark.parametrize("name", ["python", "a b", "a) R 1 (b", "):("])
def test_names_in_stat_may_hold_anything(name: str) -> None:
    rest = " ".join(str(number) for number in range(4, 53))
    assert parse_stat(f"42 ({name}) S {rest}\n") == ("S", "22")


def test_a_process_with_a_strange_name(tmp_path: Path) -> None:
    strange = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", strange)
    with subprocess.Popen([strange, "60"]) as started:
        assert named(started.pid).alive
        started.kill()
