"""One command of a row: shown, kept in a log, bounded in time, and ended in order when the run is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

AT_MOST = 12 * 3600.0
GRACE = 120.0
"""Seconds in which a command may take down what it started."""
OUT_OF_TIME = 124
LAST_OUTPUT = 5.0
"""Seconds to wait for output once a command has ended; a child of its own may hold the pipe for longer."""


def perform(words: Sequence[str], folder: Path, log: Path, *, at_most: float = AT_MOST) -> int:
    """Its exit code; OUT_OF_TIME when it had to be ended. Its output is in `log`, from the beginning.

    Ctrl-C comes to the command once, from here, so that it is not disturbed as it takes things down; a second one
    kills it. KeyboardInterrupt is raised when the command has ended.
    """
    with _noting_interruptions() as came:
        process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        reader = threading.Thread(target=_tee, args=(process.stdout, log), daemon=True)
        reader.start()
    try:
        if came:
            raise KeyboardInterrupt
        return process.wait(at_most)
    except subprocess.TimeoutExpired:
        _end(process)
        return OUT_OF_TIME
    except KeyboardInterrupt:
        _end(process)
        raise
    finally:
        reader.join(LAST_OUTPUT)


@contextmanager
def _noting_interruptions() -> Iterator[list[int]]:
    """Those that come while a command is being started: raised there, they would leave it behind."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tee(output: TextIO, log: Path) -> None:
    with log.open("w") as file:
        for line in output:
            sys.stdout.write(line)
            sys.stdout.flush()
            file.write(line)
            file.flush()


def _end(process: subprocess.Popen[str]) -> None:
    _signal(process, signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To the command and what is in its group; what is no longer there needs none."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
