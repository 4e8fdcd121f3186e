"""Processes told apart for sure: a pid may be used again, a pid with its start time is not.

A start time is text in the system's own words: field 22 of /proc/<pid>/stat, or what `ps -o lstart=` prints
where there is no /proc.
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
        """Whether this very process runs. A zombie does not."""
        return start_time(self.pid) == self.start_time

    def send(self, number: int) -> None:
        """Signal this very process; one that has ended, or is not ours to end, is left alone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "pidfd_open"):
                self._send_by_handle(number)
            elif self.alive:
                os.kill(self.pid, number)

    def _send_by_handle(self, number: int) -> None:
        """Between the look and the signal the pid cannot come to mean another process."""
        handle = os.pidfd_open(self.pid)
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def find_process(pid: int) -> Process | None:
    """The process that has this pid now."""
    started = start_time(pid)
    return Process(pid, started) if started is not None else None


def this_process() -> Process:
    return Process(os.getpid(), start_time(os.getpid()) or "")


def start_time(pid: int, *, zombies: bool = False) -> str | None:
    """When the process started; None when there is none, or only a zombie that was not asked for."""
    if pid <= 0:
        return None
    return _from_proc(pid, zombies) if _PROC.joinpath("self/stat").exists() else _from_ps(pid, zombies)


def parse_stat(text: str) -> tuple[str, str] | None:
    """State and start time from /proc/<pid>/stat. The name in parentheses may itself hold any character."""
    fields = text.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock on this file. Looks with a shared lock, let go at once."""
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
    plain = {"LC_ALL": "C", "PATH": os.defpath}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS, env=plain, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() if started and (zombies or not state.startswith("Z")) else None
