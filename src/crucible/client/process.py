"""Whether a process that a file names is still that very process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def start_time(pid: int) -> str | None:
    """When the process began, in the system's own words; None if there is no such process.

    With the pid it names a process for good, because pids are used again. On Linux field 22 of
    /proc/<pid>/stat, elsewhere what `ps` says.
    """
    if pid <= 0:
        return None
    return _from_proc(pid) if _PROC.joinpath("self/stat").exists() else _from_ps(pid)


def same_process(pid: int, started: str) -> bool:
    """Whether `pid` runs and began at `started`."""
    return start_time(pid) == started


def end(pid: int, started: str, signal_number: int) -> None:
    """Signal the process if it is still the one that began at `started`."""
    if same_process(pid, started):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return


def _from_proc(pid: int) -> str | None:
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, in parentheses, may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _from_ps(pid: int) -> str | None:
    try:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
