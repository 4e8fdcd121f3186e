"""Find and kill processes by process group or environment variable, until none is left."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Callable

from crucible.wire.process import Process, find_process

_PROC = Path("/proc")


def signal_group(pgid: int, number: int) -> bool:
    """Send the signal to every process of the group. Return False if there is none left."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS raises it for a group of zombies
        return False
    return True


def find_by_variables(wanted: dict[str, str]) -> list[Process]:
    """Return processes, except this one, that were started with all of these variables.

    Finds processes that left their group. Sees only what /proc shows to this user; nothing without /proc.
    """
    needles = [f"{name}={value}".encode() for name, value in wanted.items()]
    found = []
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(needle in variables for needle in needles) and int(entry.name) != os.getpid():
            found.append(find_process(int(entry.name)))
    return [process for process in found if process is not None]


def kill_until_gone(find: Callable[[], list[Process]], seconds: float) -> bool:
    """Kill the processes that `find` returns until it returns none. Return False if some are left after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        left = [process for process in find() if process.alive]
        if not left:
            return True
        for process in left:
            _kill(process)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(0.1, pause * 2)


def _kill(process: Process) -> None:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
