"""Processes of this computer that outlive the server: named by pid and start time, guarded by locks on files.

A pid alone may mean another process tomorrow; with the time the process started it means one. Start times are
text as the agent writes it: field 22 of /proc/<pid>/stat, or what `ps -o lstart=` prints without a /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROC = Path("/proc")
_PS_SECONDS = 5.0
_RETRY_SECONDS = 0.02


@dataclass(frozen=True)
class Process:
    pid: int
    start_time: str

    @property
    def alive(self) -> bool:
        """Whether this very process runs. A zombie does not."""
        return start_time(self.pid) == self.start_time

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this very process; one that has ended, or is not ours to end, is left alone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "pidfd_open"):
                self._send_by_handle(number)
            elif self.alive:
                os.kill(self.pid, number)

    def _send_by_handle(self, number: signal.Signals) -> None:
        """Between the look and the signal the pid cannot come to mean another process."""
        handle = os.pidfd_open(self.pid)
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def start_time(pid: int) -> str | None:
    """When the process with this pid started; None when there is none or it has ended."""
    if pid <= 0:
        return None
    return _proc_start_time(pid) if _PROC.joinpath("self/stat").exists() else _ps_start_time(pid)


def parse_stat(text: str) -> tuple[str, str]:
    """State and start time from /proc/<pid>/stat. The name in parentheses may hold spaces and those."""
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _proc_start_time(pid: int) -> str | None:
    try:
        state, started = parse_stat(_PROC.joinpath(str(pid), "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if state in "ZXx" else started


def _ps_start_time(pid: int) -> str | None:
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    plain = {"LC_ALL": "C", "PATH": os.defpath}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS, env=plain)
    except subprocess.TimeoutExpired:
        return None
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def this_process(pid: int) -> Process | None:
    """The process that has this pid now."""
    started = start_time(pid)
    return Process(pid, started) if started is not None else None


def group_members(leader: Process) -> frozenset[Process]:
    """Everything in the process group of a living leader, itself included; nothing once the leader has ended.

    While the leader lives its number means this group and no other.
    """
    if not leader.alive:
        return frozenset()
    return _named(pid for pid in psutil.pids() if _group(pid) == leader.pid)


def with_variable(name: str, values: Iterable[str]) -> frozenset[Process]:
    """Processes, other than this one, that were started with one of these values in their environment."""
    wanted = frozenset(values)
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return _named(process.pid for process in others if _variable(process, name) in wanted)


def _named(pids: Iterable[int]) -> frozenset[Process]:
    return frozenset(found for pid in pids if (found := this_process(pid)) is not None)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _variable(process: psutil.Process, name: str) -> str | None:
    try:
        return process.environ().get(name)
    except (psutil.Error, OSError):  # gone meanwhile, or another user's
        return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock. Looking may, for an instant, keep out a process that wants it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock on a file, created if need be; TimeoutError when another holds it that long.

    The holder may remove the file: who waited for a removed file tries again with the one that is there now.
    FileNotFoundError when the folder is gone.
    """
    until = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _take(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)
        if time.monotonic() >= until:
            raise TimeoutError(f"{path} is held by another process")
        time.sleep(_RETRY_SECONDS)


def _take(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
