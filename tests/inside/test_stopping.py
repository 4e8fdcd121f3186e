"""Stopping, seen from inside real processes, since a signal handler belongs to the whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PREAMBLE = """
import os, signal, sys, threading
from crucible.inside import on_stop, should_checkpoint, should_stop
def term(): os.kill(os.getpid(), signal.SIGTERM)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PREAMBLE + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def out(code: str) -> list[str]:
    result = run(code)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_installs_nothing() -> None:
    assert run("term()").returncode == -15


def test_sigterm_is_seen_and_no_longer_ends_the_process() -> None:
    assert out("print(should_stop()); term(); print(should_stop())") == ["False", "True"]


def test_the_stop_file_is_seen(job: Path) -> None:
    assert out("print(should_stop())") == ["False"]
    (job / "stop").touch()
    assert out("print(should_stop())") == ["True"]


def test_the_handler_before_is_still_called() -> None:
    before = "signal.signal(signal.SIGTERM, lambda n, f: print('mine', n))"
    code = f"{before}; should_stop(); term(); print(should_stop())"
    assert out(code) == ["mine", "15", "True"]


def test_an_ignored_signal_is_seen_all_the_same() -> None:
    assert out("signal.signal(signal.SIGTERM, signal.SIG_IGN); on_stop(); term(); print(should_stop())") == ["True"]


def test_callbacks_run_once_in_order_and_late_ones_at_once() -> None:
    before = "on_stop(lambda: print('a')); on_stop(lambda: print('b'))"
    code = f"{before}; term(); term(); on_stop(lambda: print('c'))"
    assert out(code) == ["a", "b", "c"]


def test_another_thread_may_ask() -> None:
    code = "t = threading.Thread(target=lambda: print(should_stop())); t.start(); t.join(); print(should_stop())"
    assert out(code) == ["False", "False"]


def test_each_request_for_a_checkpoint_is_seen_once(job: Path) -> None:
    now = str(job / "checkpoint-now")
    ask = f"open({now!r}, 'a').close(); os.utime({now!r}, ns=(1, n))"
    code = f"""
print(should_checkpoint())
for n in (1, 2):
    {ask}
    print(should_checkpoint(), should_checkpoint())
"""
    assert out(code) == ["False", "True", "False", "True", "False"]


def test_a_request_that_the_program_took_away_may_come_again(job: Path) -> None:
    now = str(job / "checkpoint-now")
    code = f"""
for n in (1, 2):
    open({now!r}, 'w').close()
    os.utime({now!r}, ns=(n, n))
    print(should_checkpoint())
    os.unlink({now!r})
    print(should_checkpoint())
"""
    assert out(code) == ["True", "False", "True", "False"]


@pytest.mark.usefixtures("off_platform")
def test_off_platform_the_answer_is_no() -> None:
    assert out("print(should_stop(), should_checkpoint())") == ["False", "False"]
