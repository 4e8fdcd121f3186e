"""Detect a machine's CPUs, memory and GPUs, within the limits that apply to the agent itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Protocol

from crucible.agent.process.sampling.mounts import Mounts
from crucible.agent.process.sampling.nvml import GpuDevice, Nvml

CPU, CUDA, MPS = "cpu", "cuda", "mps"


@dataclass(frozen=True)
class Devices:
    """Detected devices. `cpus`: a fraction under a quota; `kind`: what training would use (cuda, mps or cpu)."""

    cpus: float
    memory_bytes: int
    gpus: tuple[GpuDevice, ...]
    mps: bool
    kind: str


class GpuLister(Protocol):
    def devices(self) -> list[GpuDevice]: ...


class MachineProbe(Protocol):
    """What `detect_devices` reads from a machine."""

    def system(self) -> tuple[str, str]: ...
    def allowed_cpus(self) -> int: ...
    def physical_memory(self) -> int: ...
    def read(self, path: str) -> Optional[str]: ...
    def gpus(self) -> Optional[GpuLister]: ...


class Probe:
    """Reads this machine."""

    def system(self) -> tuple[str, str]:
        uname = os.uname()
        return uname.sysname, uname.machine

    def allowed_cpus(self) -> int:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def physical_memory(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def read(self, path: str) -> Optional[str]:
        try:
            return Path(path).read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def gpus(self) -> Optional[GpuLister]:
        return Nvml.load()


def detect_devices(probe: MachineProbe) -> Devices:
    """Return CPUs by affinity and cgroup quota, memory by cgroup limit, GPUs by NVML, MPS on Apple silicon."""
    lister = probe.gpus()
    gpus = tuple(lister.devices()) if lister is not None else ()
    mps = probe.system() == ("Darwin", "arm64")
    return Devices(
        cpus=min([float(probe.allowed_cpus()), *_quotas(probe)]),
        memory_bytes=min([probe.physical_memory(), *_memory_limits(probe)]),
        gpus=gpus,
        mps=mps,
        kind=CUDA if gpus else MPS if mps else CPU,
    )


def _quotas(probe: MachineProbe) -> Iterator[float]:
    mounts = _mounts(probe)
    for folder in mounts.own_folders("cpu"):
        quota, period = (
            _number(probe, f"{folder}/cpu.cfs_quota_us"),
            _number(probe, f"{folder}/cpu.cfs_period_us"),
        )
        if quota is not None and period and quota > 0:
            yield quota / period
    for folder in mounts.own_folders(""):
        limit = (probe.read(f"{folder}/cpu.max") or "max").split()
        if len(limit) == 2 and limit[0].isdigit() and int(limit[1]) > 0:
            yield int(limit[0]) / int(limit[1])


def _memory_limits(probe: MachineProbe) -> Iterator[int]:
    mounts = _mounts(probe)
    files = [f"{folder}/memory.limit_in_bytes" for folder in mounts.own_folders("memory")]
    files += [f"{folder}/memory.max" for folder in mounts.own_folders("")]
    for file in files:
        limit = _number(probe, file)
        if limit is not None and limit > 0:
            yield limit


def _mounts(probe: MachineProbe) -> Mounts:
    return Mounts.parse(probe.read("/proc/self/mountinfo") or "", probe.read("/proc/self/cgroup") or "")


def _number(probe: MachineProbe, path: str) -> Optional[int]:
    text = (probe.read(path) or "").strip()
    return int(text) if text.lstrip("-").isdigit() else None
