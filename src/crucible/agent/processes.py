"""Processes told apart for sure: a pid may be used again, a pid with its start time is not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """`start_time` is field 22 of /proc/<pid>/stat, or what `ps -o lstart=` prints if there is no /proc."""

    pid: int
    start_time: str

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return start_time(self.pid) == self.start_time


def start_time(pid: int, *, zombies: bool = False) -> str | None:
    """When the process was started, or None when there is none (or only a zombie that was not asked for)."""
    if _PROC.joinpath("self").exists():
        return _start_time_from_proc(pid, zombies)
    return _start_time_from_ps(pid, zombies)


def this_process() -> Process:
    return of_pid(os.getpid())


def of_pid(pid: int) -> Process:
    return Process(pid, start_time(pid) or "")


def _start_time_from_proc(pid: int, zombies: bool) -> str | None:
    try:
        # The name in parentheses may hold spaces and parentheses; what follows the last one is regular.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and not zombies):
        return None
    return fields[19].decode()


def _start_time_from_ps(pid: int, zombies: bool) -> str | None:
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    state, _, started = answer.partition(" ")
    return None if not started or (state.startswith("Z") and not zombies) else started.strip()


def signal_group(pgid: int, number: int) -> bool:
    """Send the signal to every process of the group; False when there is none left."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group of zombies
        return False
    return True


def with_variables(wanted: dict[str, str]) -> list[Process]:
    """Processes (but not this one) whose environment at their start had all these variables.

    Finds what left its process group; sees only what /proc shows to this user.
    """
    needles = [f"{name}={value}".encode() for name, value in wanted.items()]
    found = []
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(needle in variables for needle in needles) and int(entry.name) != os.getpid():
            found.append(of_pid(int(entry.name)))
    return [process for process in found if process.start_time]


def kill_until_gone(find: Callable[[], list[Process]], seconds: float) -> bool:
    """KILL what `find` returns until it returns nothing; False when some is left after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        left = [process for process in find() if process.is_alive()]
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
