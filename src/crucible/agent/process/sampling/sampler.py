"""Sample the resource usage of a job's processes and their machine."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Protocol

from crucible.agent.process.sampling.nvml import GpuReading, amd_readings
from crucible.agent.process.sampling.processes import ProcessInfo, Table, read_table, tree

_IO = re.compile(rb"^(read|write)_bytes: (\d+)$", re.MULTILINE)
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


class GpuReader(Protocol):
    def readings(self) -> list[GpuReading]: ...


@dataclass(frozen=True)
class Sample:
    """One sample. Sizes in bytes; `cpu_percent` is 100 for one busy CPU, and None in the first sample.

    `read_bytes` and `write_bytes` are totals of the processes alive now. None: not available on this machine.
    """

    cpu_percent: Optional[float]
    cpu_seconds: float
    rss_bytes: int
    processes: int
    memory_total: Optional[int]
    memory_available: Optional[int]
    disk_free: Optional[int]
    read_bytes: Optional[int]
    write_bytes: Optional[int]
    gpus: tuple[GpuReading, ...] = ()


class SystemSampler:
    """Remembers the last sample, to compute CPU usage since then."""

    def __init__(
        self,
        proc: str = "/proc",
        sys: str = "/sys",
        nvml: Optional[GpuReader] = None,
        disk: str = "/",
        clock: Callable[[], float] = time.monotonic,
        table: Callable[[str], Table] = read_table,
    ) -> None:
        self._proc, self._sys, self._nvml, self._disk = proc, sys, nvml, disk
        self._clock, self._table = clock, table
        self._last: Optional[tuple[float, dict[tuple[int, int], float]]] = None

    def sample(self, pids: Iterable[int] = (), pgid: Optional[int] = None) -> Sample:
        """Return a sample of the processes with these pids or in this group, and all their descendants."""
        members = tree(self._table(self._proc), pids, pgid)
        total, available = self._memory()
        read, written = self._io(members)
        return Sample(
            cpu_percent=self._busy(members),
            cpu_seconds=sum(process.seconds for process in members),
            rss_bytes=sum(process.rss for process in members),
            processes=len(members),
            memory_total=total,
            memory_available=available,
            disk_free=self._free(),
            read_bytes=read,
            write_bytes=written,
            gpus=tuple(self._nvml.readings() if self._nvml is not None else amd_readings(self._sys)),
        )

    def _busy(self, members: list[ProcessInfo]) -> Optional[float]:
        now = self._clock()
        spent = {(process.pid, process.start): process.seconds for process in members}
        before, self._last = self._last, (now, spent)
        if before is None or now <= before[0]:
            return None
        # A process that started since has spent all its CPU time since.
        since = sum(max(0.0, seconds - before[1].get(key, 0.0)) for key, seconds in spent.items())
        return 100 * since / (now - before[0])

    def _memory(self) -> tuple[Optional[int], Optional[int]]:
        try:
            text = Path(self._proc, "meminfo").read_text()
        except OSError:
            return _physical_memory(), None
        found = {name: int(kilobytes) * 1024 for name, kilobytes in _MEMINFO.findall(text)}
        return found.get("MemTotal"), found.get("MemAvailable")

    def _io(self, members: list[ProcessInfo]) -> tuple[Optional[int], Optional[int]]:
        sums: dict[bytes, int] = {}
        for process in members:
            for name, count in _IO.findall(self._io_of(process.pid)):
                sums[name] = sums.get(name, 0) + int(count)
        return sums.get(b"read"), sums.get(b"write")

    def _io_of(self, pid: int) -> bytes:
        try:
            return Path(self._proc, str(pid), "io").read_bytes()
        except OSError:
            return b""

    def _free(self) -> Optional[int]:
        try:
            disk = os.statvfs(self._disk)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize


def _physical_memory() -> Optional[int]:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
