"""Detect CPUs, memory and GPUs of this computer, as far as this process may use them.

`detect` asks a `Probe`; `SystemProbe` is the real one. CPUs follow the affinity mask and the quota of the
control group, memory its limit, GPUs `CUDA_VISIBLE_DEVICES`; they are numbered as NVML does, by PCI bus.
"""

from __future__ import annotations

import enum
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from crucible.core.compute.resources import Capacity


class DeviceKind(enum.StrEnum):
    """The device that a training script would choose first."""

    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"


@dataclass(frozen=True)
class Gpu:
    """A GPU. `memory_bytes` is 0 if the driver does not report it."""

    index: int
    name: str
    memory_bytes: int = 0
    uuid: str = ""


@dataclass(frozen=True)
class Devices:
    capacity: Capacity
    kind: DeviceKind


class Probe(Protocol):
    """What `detect` asks of a computer."""

    def cpus(self) -> float:
        """Return the CPUs that this process may use; with a quota it may be a fraction."""

    def memory_bytes(self) -> int:
        """Return the memory that this process may use."""

    def cuda(self) -> Sequence[Gpu]:
        """Return the CUDA devices in the order of the driver; none without a driver."""

    def mps(self) -> Gpu | None:
        """Return the GPU of an Apple chip, or None."""


def detect(probe: Probe) -> Devices:
    """Return the devices of a computer. With several GPU types, memory is that of the smallest."""
    gpus, kind = _gpus(probe)
    capacity = Capacity(
        cpus=probe.cpus(),
        memory_bytes=probe.memory_bytes(),
        gpus=tuple(gpu.index for gpu in gpus),
        gpu_memory_bytes=min((gpu.memory_bytes for gpu in gpus), default=0),
        gpu_name=", ".join(sorted({gpu.name for gpu in gpus})),
    )
    return Devices(capacity, kind)


def _gpus(probe: Probe) -> tuple[Sequence[Gpu], DeviceKind]:
    cuda = probe.cuda()
    if cuda:
        return cuda, DeviceKind.CUDA
    mps = probe.mps()
    return ((mps,), DeviceKind.MPS) if mps else ((), DeviceKind.CPU)


class SystemProbe:
    """The real computer. `visible` is CUDA_VISIBLE_DEVICES; `root` is where /proc and /sys are mounted."""

    def __init__(self, visible: str | None = None, root: Path = Path("/")) -> None:
        self._visible = visible
        self._root = root

    def cpus(self) -> float:
        return round(min([float(_usable_cpus()), *_cpu_quotas(self._root)]), 2)

    def memory_bytes(self) -> int:
        return min([_installed_memory(), *_memory_limits(self._root)])

    def cuda(self) -> Sequence[Gpu]:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return ()
        return choose_visible(read_nvml(nvml), self._visible)

    def mps(self) -> Gpu | None:
        if platform.system() != "Darwin" or platform.machine() != "arm64":
            return None
        return Gpu(0, "Apple GPU", self.memory_bytes())


def _installed_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# NVML


def read_nvml(nvml: Any) -> Sequence[Gpu]:
    """Return every GPU that the `pynvml` module lists; none without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(_nvml_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # GPUs that share the computer's memory report none of their own
        memory = 0
    return Gpu(index, _text(nvml.nvmlDeviceGetName(handle)), memory, _text(nvml.nvmlDeviceGetUUID(handle)))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def choose_visible(gpus: Sequence[Gpu], visible: str | None) -> Sequence[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects. As in CUDA, the first unknown name ends the list."""
    if visible is None:
        return gpus
    chosen: list[Gpu] = []
    for wanted in visible.split(","):
        found = [gpu for gpu in gpus if _is_named(gpu, wanted.strip())]
        if len(found) != 1 or found[0] in chosen:
            break
        chosen += found
    return tuple(chosen)


def _is_named(gpu: Gpu, wanted: str) -> bool:
    return wanted == str(gpu.index) or (wanted.startswith("GPU-") and gpu.uuid.startswith(wanted))


# Control groups: every level above this process may set a limit, and the smallest one holds


def _cpu_quotas(root: Path) -> Iterator[float]:
    for folder in _levels(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not period:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _memory_limits(root: Path) -> Iterator[int]:
    for folder in _levels(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                yield int(text)


def _levels(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of our control group and those above it, for cgroup v2 and v1."""
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            top = mounts / controllers
            yield from _upward(top, path.strip("/").split("/"))


def _upward(top: Path, parts: Iterable[str]) -> Iterator[Path]:
    """Yield the folders of a path from the top. In a container, some of them may not be mounted; the top always is."""
    folder = top
    yield folder
    for part in parts:
        folder = folder / part
        if part in ("", "..") or not folder.is_dir():
            return
        yield folder


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
