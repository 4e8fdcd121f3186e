"""Find processes that outlive the server, by process group or variable."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from crucible.wire.process import Process, find_process

_PROC = Path("/proc")


def group_members(leader: Process) -> frozenset[Process]:
    """Return the processes in the group of a living leader, itself included; empty once the leader has ended.

    After that, its pid may belong to another group.
    """
    if not leader.alive:
        return frozenset()
    return _find_processes(pid for pid in _pids() if _group(pid) == leader.pid)


def processes_with_variable(name: str, values: Iterable[str]) -> frozenset[Process]:
    """Return other processes of this user that were started with one of these values in their environment."""
    wanted = frozenset(values)
    return _find_processes(pid for pid in _pids() if pid != os.getpid() and variable(pid, name) in wanted)


def variable(pid: int, name: str) -> str | None:
    """Return this variable of a process; None if it has none, has ended, or belongs to another user."""
    if _PROC.is_dir():
        prefix = os.fsencode(f"{name}=")
        variables = _read(_PROC / str(pid) / "environ").split(b"\0")
        return next((os.fsdecode(each[len(prefix) :]) for each in variables if each.startswith(prefix)), None)
    import psutil  # macOS shows the variables of processes only through calls that it wraps

    try:
        found = psutil.Process(pid).environ().get(name)
    except (psutil.Error, OSError):
        return None
    return None if found is None else str(found)


def _pids() -> list[int]:
    if _PROC.is_dir():
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    import psutil

    return list(psutil.pids())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return b""


def _find_processes(pids: Iterable[int]) -> frozenset[Process]:
    return frozenset(found for pid in pids if (found := find_process(pid)) is not None)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None
