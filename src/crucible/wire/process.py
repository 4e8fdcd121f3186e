"""Identify processes by pid and start time: a pid alone may be reused.

A start time is text in the system's own format: field 22 of /proc/<pid>/stat, or the output of `ps -o lstart=` if
there is no /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PS_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    pid: int
    start_time: str

    @property
    def alive(self) -> bool:
        """Whether this process still runs. A zombie does not."""
        return start_time(self.pid) == self.start_time

    def send(self, number: int) -> None:
        """Send a signal to this process; do nothing if it has ended or belongs to another user."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "pidfd_open"):
                self._send_by_handle(number)
            elif self.alive:
                os.kill(self.pid, number)

    def _send_by_handle(self, number: int) -> None:
        """Send through a pidfd, so that the pid cannot be reused between the check and the signal."""
        handle = os.pidfd_open(self.pid)
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def find_process(pid: int) -> Process | None:
    """Return the process that has this pid now, or None."""
    started = start_time(pid)
    return Process(pid, started) if started is not None else None


def this_process() -> Process:
    return Process(os.getpid(), start_time(os.getpid()) or "")


def start_time(pid: int, *, zombies: bool = False) -> str | None:
    """Return the start time of a process; None if there is none, or only a zombie and `zombies` is False."""
    if pid <= 0:
        return None
    return _from_proc(pid, zombies) if _PROC.joinpath("self/stat").exists() else _from_ps(pid, zombies)


def parse_stat(text: str) -> tuple[str, str] | None:
    """Return state and start time from /proc/<pid>/stat. The name in parentheses may contain any character."""
    fields = text.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


def is_locked(path: Path) -> bool:
    """Return whether the file is locked. Checks with a shared lock, released at once."""
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _from_proc(pid: int, zombies: bool) -> str | None:
    try:
        found = parse_stat(_PROC.joinpath(str(pid), "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    if found is None or (found[0] in "ZXx" and not zombies):
        return None
    return found[1]


def _from_ps(pid: int, zombies: bool) -> str | None:
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    env = {"LC_ALL": "C", "PATH": os.defpath}
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, started = output.stdout.strip().partition(" ")
    return started.strip() if started and (zombies or not state.startswith("Z")) else None
