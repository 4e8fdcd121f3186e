"""Run one command of a row with a log and a timeout, and end it cleanly if the run is interrupted."""

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
"""Seconds for a command to clean up what it started."""
OUT_OF_TIME = 124
LAST_OUTPUT = 5.0
"""Seconds to wait for output after a command has ended; one of its children may keep the pipe open for longer."""


def perform(words: Sequence[str], folder: Path, log: Path, *, at_most: float = AT_MOST) -> int:
    """Run the command and return its exit code, or OUT_OF_TIME if it was ended. `log` gets its output.

    The first Ctrl-C is passed to the command once, so that it can clean up; a second one kills it. KeyboardInterrupt is
    raised once the command has ended.
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
    """Collect interruptions while a command is being started: raised there, they would leave the process behind."""
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
    """Send a signal to the command's process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
