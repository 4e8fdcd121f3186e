"""A process that leaves has written what it wrote, and waits for nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crucible.wire.leaving import UNWRITTEN

LEAVE = "import sys\nfrom crucible.wire.leaving import leave\n{}\nleave({})\n"


def left(before: str, code: int = 3, **streams: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LEAVE.format(before, code)]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {}, **streams}
    return subprocess.run(command, text=True, timeout=30, check=False, **given)  # type: ignore[call-overload, no-any-return]


def test_with_all_that_was_written() -> None:
    done = left("sys.stdout.write('out'); sys.stderr.write('err')")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out", "err")


def test_whatever_still_runs() -> None:
    waits = "import threading, time, atexit\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    assert left(waits + "atexit.register(time.sleep, 60)").returncode == 3


@pytest.mark.parametrize(("code", "told"), [(0, UNWRITTEN), (3, 3)])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_what_cannot_be_written_is_no_success(code: int, told: int) -> None:
    with open("/dev/full", "w") as full:
        done = left("sys.stdout.write('out')", code, stdout=full)
    assert done.returncode == told
    assert "No space left" in done.stderr


def test_nothing_is_said_where_nobody_reads_any_more() -> None:
    done = left("import os\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\nsys.stdout.write('out')", 0)
    assert (done.returncode, done.stderr) == (UNWRITTEN, "")


@pytest.mark.parametrize("before", ["sys.stdout = None", "sys.stdout.close()", "sys.stderr = None"])
def test_streams_that_are_closed_or_not_there(before: str) -> None:
    assert left(before, 0).returncode == 0
