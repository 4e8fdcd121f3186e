"""Machines as processes: each runs its user data in its own folder and session.

These processes belong to a machine: those in its session; those with its id, or a path on its disk, in their
environment; those that work in its folder; and the children of all these, with their sessions.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ID_VARIABLE = "CLOUD_INSTANCE_ID"
_PROC = "/proc"
_PS_SECONDS = 5.0
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Process:
    """A process. `started`: its start time in the system's format, because pids are reused."""

    pid: int
    started: str


@dataclass(frozen=True)
class Row:
    """A living process in the process table; zombies are left out."""

    pid: int
    parent: int
    session: int
    started: str


class Machines:
    """The machines of a cloud. `folder` holds their disks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def prepare(self, id: str, user_data: str) -> None:
        """Create the machine's disk, with its user data, which only its owner can read."""
        folder = self._folder / id
        folder.mkdir(mode=0o700, parents=True)
        descriptor = os.open(folder / "user-data", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(user_data)

    def boot(self, id: str, environ: Mapping[str, str]) -> Process:
        """Run the user data. Raises OSError if the machine does not start."""
        folder = self._folder / id
        with open(folder / "console.log", "ab") as console:
            child = subprocess.Popen(
                ["/bin/sh", str(folder / "user-data")],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd=folder,
                env={**environ, ID_VARIABLE: id, "HOME": str(folder)},
                start_new_session=True,
            )
        self._children[child.pid] = child
        return Process(child.pid, _started(child.pid))

    def adopt(self, id: str) -> Process | None:
        """Return the machine's process if a cloud started it and was killed before it could note that, else None."""
        leaders = (row for row in _rows() if row.pid == row.session and _instance_of(row.pid) == id)
        return next((Process(row.pid, row.started) for row in leaders), None)

    def alive(self, process: Process) -> bool:
        """Return whether the user data still runs."""
        child = self._children.get(process.pid)
        if child is not None:
            return child.poll() is None
        return any(row.pid == process.pid and row.started == process.started for row in _rows(process.pid))

    def ask(self, process: Process | None) -> None:
        """Send SIGTERM to everything in the machine's session."""
        rows = list(_rows())
        session = _session(rows, process)
        for row in rows:
            if row.session == session:
                _send(row.pid, signal.SIGTERM)

    def end(self, id: str, process: Process | None) -> bool:
        """Kill everything on the machine, and what starts meanwhile. Return False if something is left."""
        until = time.monotonic() + _KILL_SECONDS
        while members := list(self._members(id, process)):
            for row in members:
                _send(row.pid, signal.SIGKILL)
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        self._reap(process)
        return True

    def remove(self, id: str) -> None:
        """Remove the machine's disk."""
        shutil.rmtree(self._folder / id, onerror=_unlock)

    def leftovers(self) -> list[str]:
        """Return the ids of machines that have a disk."""
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []

    def _members(self, id: str, process: Process | None) -> Iterator[Row]:
        self._reap(process)
        rows = [row for row in _rows() if row.pid != os.getpid()]
        session = _session(rows, process)
        young = [row for row in rows if _not_older(row, process)]
        members = {row for row in rows if row.session == session}
        members |= {row for row in young if self._is_on(row.pid, id)}
        while more := {row for row in young if row not in members and _follows(row, members)}:
            members |= more
        yield from members

    def _is_on(self, pid: int, id: str) -> bool:
        """Return whether the environment or the working directory of a process belongs to the machine."""
        disk = str(self._folder / id)
        known = _read(f"{_PROC}/{pid}/environ")
        if _instance_in(known) == id or re.search(rb"%s(?![\w-])" % re.escape(disk.encode()), known):
            return True
        try:
            cwd = os.readlink(f"{_PROC}/{pid}/cwd")
        except OSError:
            return False
        return Path(cwd).is_relative_to(disk)

    def _reap(self, process: Process | None) -> None:
        child = self._children.get(process.pid) if process else None
        if child is not None and child.poll() is not None:
            del self._children[child.pid]


def _session(rows: list[Row], process: Process | None) -> int | None:
    """Return the machine's session; None if its pid was reused by another process."""
    if process is None:
        return None
    reused = any(row.pid == process.pid and row.started != process.started for row in rows)
    return None if reused else process.pid


def _follows(row: Row, members: set[Row]) -> bool:
    return any(row.parent == member.pid or row.session == member.pid for member in members)


def _not_older(row: Row, process: Process | None) -> bool:
    """Return whether a process may belong to the machine. One that started before it cannot; this rules out most."""
    if process is None or not (row.started.isdigit() and process.started.isdigit()):
        return True
    return int(row.started) >= int(process.started)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _rows(*pids: int) -> Iterator[Row]:
    """Yield the living processes (default: all), or those with these pids."""
    if not os.path.exists(f"{_PROC}/self/stat"):
        yield from _rows_by_ps(pids)
        return
    for pid in pids or (int(name) for name in os.listdir(_PROC) if name.isdigit()):
        fields = _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 19 and fields[0] not in (b"Z", b"X", b"x"):
            yield Row(pid, int(fields[1]), int(fields[3]), fields[19].decode())


def _rows_by_ps(pids: tuple[int, ...]) -> Iterator[Row]:
    command = ["ps", "-axo", "pid=,ppid=,stat=,lstart="]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS, check=True)
    for line in answer.stdout.splitlines():
        number, parent, state, started = line.split(maxsplit=3)
        if state.startswith("Z") or (pids and int(number) not in pids):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            yield Row(int(number), int(parent), os.getsid(int(number)), started.strip())


def _read(path: str) -> bytes:
    """Read a file of /proc; empty if the process has ended or belongs to another user."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _started(pid: int) -> str:
    return next((row.started for row in _rows(pid)), "")


def _instance_of(pid: int) -> str | None:
    """Return the instance id in the environment of a process, or None."""
    return _instance_in(_read(f"{_PROC}/{pid}/environ"))


def _instance_in(environ: bytes) -> str | None:
    start = f"{ID_VARIABLE}=".encode()
    found = (v for v in environ.split(b"\0") if v.startswith(start))
    return next((v[len(start) :].decode(errors="replace") for v in found), None)


def _unlock(
    function: Callable[..., object],
    path: str,
    trouble: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    """Make folders writable and retry, for shutil.rmtree. What cannot be removed even then stays on disk."""
    with contextlib.suppress(OSError):
        for blocked in (os.path.dirname(path), path):
            mode = os.lstat(blocked).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(blocked, mode | stat.S_IRWXU)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
