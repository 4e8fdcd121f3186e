"""Limits without cgroups: the runner checks memory, and CPU affinity limits whole CPUs."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import zlib
from pathlib import Path
from typing import Optional

from crucible.agent.process.limits.base import KILL_DEADLINE, Confinement, Limiter, check_name
from crucible.agent.process.limits.cgroups import wait_until
from crucible.agent.process.sampling.processes import (
    ProcessInfo,
    own_start_time,
    pids_with_variable,
    read_table,
    start_time_of,
    tree,
)

_NICE_INCREMENT = 5
_MEMORY, _CPUS, _ROOT, _OOM, _PEAK = "memory", "cpus", "root", "oom", "peak"


class RlimitConfinement(Confinement):
    """Keeps its state in a small append-only file of `name value` lines, for a restart."""

    def __init__(self, path: Path, proc: str = "/proc") -> None:
        self._path = path
        self._proc = proc
        self._known: set[tuple[int, int]] = set()
        self._peak = 0

    def enter(self) -> None:
        self._note(_ROOT, os.getpid(), own_start_time(self._proc))
        self._restrict(0)

    def admit(self, pid: int) -> None:
        self._note(_ROOT, pid, start_time_of(pid, self._proc))
        self._restrict(pid)

    def _restrict(self, pid: int) -> None:
        """Set CPU affinity and priority of a process; 0 is the calling process."""
        cpus = self._value(_CPUS)
        if cpus is None:
            return
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(pid, _some_cpus(self._path.name, math.ceil(cpus)))
        if cpus != int(cpus):
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + _NICE_INCREMENT)

    def oom_killed(self) -> bool:
        return self._value(_OOM) is not None

    def usage(self) -> tuple[float, int]:
        members = self._members()
        return sum(p.seconds for p in members), sum(p.rss for p in members)

    def peak_memory(self) -> int:
        return max(self._peak, int(self._value(_PEAK) or 0))

    def pids(self) -> list[int]:
        return [process.pid for process in self._members()]

    def tick(self) -> bool:
        limit, used = self._value(_MEMORY), self.usage()[1]
        self._peak = max(self._peak, used)
        if limit is None or used <= limit:
            return False
        self._note(_PEAK, used)
        self._note(_OOM, 1)
        self.kill_all()
        return True

    def kill_all(self) -> None:
        wait_until(self._killed, KILL_DEADLINE, "killed processes are still there")

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()

    def limit(self, memory_bytes: Optional[int], cpus: Optional[float]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.write_text("")
        if memory_bytes is not None:
            self._note(_MEMORY, memory_bytes)
        if cpus is not None:
            self._note(_CPUS, cpus)

    def _killed(self) -> bool:
        left = self.pids()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _members(self) -> list[ProcessInfo]:
        """Return every process that was ever a descendant of those that entered, or has the attempt's variable."""
        table = read_table(self._proc)
        entered = self._roots()
        roots = {pid for pid, start in entered | self._known if _is_same(table.get(pid), start)}
        # A process group outlives its leader, and no other process gets the leader's pid meanwhile.
        leaders = {pid for pid, start in entered if pid not in table or _is_same(table[pid], start)}
        group = {p.pid for p in table.values() if p.sid in leaders or p.pgid in leaders}
        members = tree(table, roots | group | set(self._with_variable()))
        self._known = {(process.pid, process.start) for process in members}
        return [process for process in members if process.pid != os.getpid()]

    def _with_variable(self) -> list[int]:
        return (
            pids_with_variable(f"CRUCIBLE_ATTEMPT_ID={self._path.name}", self._proc)
            if os.path.isdir(self._proc)
            else []
        )

    def _roots(self) -> set[tuple[int, int]]:
        return {(int(row[1]), int(row[2])) for row in self._rows() if row[0] == _ROOT and len(row) == 3}

    def _value(self, name: str) -> Optional[float]:
        return next((float(row[1]) for row in reversed(self._rows()) if row[0] == name and len(row) > 1), None)

    def _rows(self) -> list[list[str]]:
        try:
            return [line.split() for line in self._path.read_text().splitlines() if line]
        except FileNotFoundError:
            return []

    def _note(self, name: str, *values: float) -> None:
        with open(self._path, "a") as file:
            file.write(" ".join([name, *map(str, values)]) + "\n")


class RlimitLimiter(Limiter):
    """`folder` holds one small file per attempt; it must survive a restart of the host."""

    def __init__(self, folder: Path, proc: str = "/proc") -> None:
        self._folder = folder
        self._proc = proc

    def describe(self) -> str:
        cpu = "whole CPUs by affinity" if hasattr(os, "sched_setaffinity") else ""
        on = ", ".join(filter(None, ["memory (checked every second, killed when above)", cpu]))
        off = "fractions of a CPU (run at lower priority instead), number of processes"
        return f"no usable cgroup: enforced: {on}; not enforced: {off if cpu else 'CPU, number of processes'}"

    def prepare(
        self,
        attempt_id: str,
        memory_bytes: Optional[int] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Confinement:
        confinement = RlimitConfinement(self._folder / check_name(attempt_id), self._proc)
        confinement.limit(memory_bytes, cpus)
        return confinement

    def find_left(self, attempt_id: str) -> Optional[Confinement]:
        path = self._folder / check_name(attempt_id)
        return RlimitConfinement(path, self._proc) if path.exists() else None


def _some_cpus(name: str, count: int) -> set[int]:
    """Return `count` of the CPUs that this process may use, starting at a different one for each attempt."""
    allowed = sorted(os.sched_getaffinity(0))
    first = zlib.crc32(name.encode()) % len(allowed)
    return {allowed[(first + i) % len(allowed)] for i in range(max(1, count))}


def _is_same(process: Optional[ProcessInfo], start: int) -> bool:
    return process is not None and process.start == start
