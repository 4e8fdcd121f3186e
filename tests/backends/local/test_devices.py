from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.backends.local.place import FakeProbe

from crucible.backends.local.devices import DeviceKind, Gpu, SystemProbe, choose_visible, detect, read_nvml
from crucible.core.compute.resources import GiB, MiB

A100 = Gpu(0, "NVIDIA A100", 40 * GiB, "GPU-aaaa-1111")
SECOND = Gpu(1, "NVIDIA A100", 40 * GiB, "GPU-aaaa-2222")
T4 = Gpu(2, "Tesla T4", 16 * GiB, "GPU-bbbb-3333")
GPUS = (A100, SECOND, T4)


class TestDetect:
    def test_a_computer_without_gpus(self) -> None:
        found = detect(FakeProbe(cpus=1.5, memory_bytes=2 * GiB))
        assert found.kind is DeviceKind.CPU
        assert (found.capacity.cpus, found.capacity.memory_bytes) == (1.5, 2 * GiB)
        assert (found.capacity.gpus, found.capacity.gpu_memory_bytes) == ((), 0)

    def test_cuda(self) -> None:
        found = detect(FakeProbe(cuda=(A100, SECOND)))
        assert found.kind is DeviceKind.CUDA
        assert found.capacity.gpus == (0, 1)
        assert (found.capacity.gpu_memory_bytes, found.capacity.gpu_name) == (40 * GiB, "NVIDIA A100")

    def test_different_gpus_count_as_the_smallest(self) -> None:
        capacity = detect(FakeProbe(cuda=(SECOND, T4))).capacity
        assert capacity.gpus == (1, 2)
        assert (capacity.gpu_memory_bytes, capacity.gpu_name) == (16 * GiB, "NVIDIA A100, Tesla T4")

    def test_an_apple_chip(self) -> None:
        found = detect(FakeProbe(mps=Gpu(0, "Apple GPU", 32 * GiB)))
        assert found.kind is DeviceKind.MPS
        assert found.capacity.gpus == (0,)


class NvmlError(Exception):
    pass


@dataclass(frozen=True)
class Memory:
    total: int


class FakeNvml:
    """Return a fake `pynvml` module with these GPUs; None: without a driver."""

    NVMLError = NvmlError

    def __init__(self, gpus: Sequence[Gpu] | None) -> None:
        self._gpus = gpus
        self.open = 0

    def nvmlInit(self) -> None:
        if self._gpus is None:
            raise NvmlError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus or ())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        assert self._gpus is not None
        return self._gpus[index]

    def nvmlDeviceGetName(self, handle: Gpu) -> bytes:
        return handle.name.encode()

    def nvmlDeviceGetUUID(self, handle: Gpu) -> str:
        return handle.uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Gpu) -> Memory:
        if not handle.memory_bytes:
            raise NvmlError("Not Supported")
        return Memory(handle.memory_bytes)


class TestNvml:
    def test_gpus_are_read_and_the_library_is_closed(self) -> None:
        nvml = FakeNvml(GPUS)
        assert read_nvml(nvml) == GPUS
        assert nvml.open == 0

    def test_without_a_driver_there_are_none(self) -> None:
        assert read_nvml(FakeNvml(None)) == ()

    def test_memory_the_driver_does_not_tell_is_zero(self) -> None:
        shared = Gpu(0, "NVIDIA GB10", 0, "GPU-cccc")
        assert read_nvml(FakeNvml((shared,))) == (shared,)


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, GPUS),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1", (SECOND,)),
        ("2, 0", (T4, A100)),
        ("0,9,1", (A100,)),
        ("1,1", (SECOND,)),
        ("GPU-bbbb", (T4,)),
        ("GPU-aaaa", ()),
    ],
)
def test_visible_devices(visible: str | None, chosen: Sequence[Gpu]) -> None:
    assert tuple(choose_visible(GPUS, visible)) == chosen


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class TestControlGroups:
    def test_no_limits(self, tmp_path: Path) -> None:
        probe = SystemProbe(root=tmp_path)
        assert probe.cpus() >= 1
        assert probe.memory_bytes() == psutil.virtual_memory().total

    def test_version_2_with_a_limit_at_each_level(self, tmp_path: Path) -> None:
        root = write(
            tmp_path,
            {
                "proc/self/cgroup": "0::/user.slice/job.scope\n",
                "sys/fs/cgroup/user.slice/cpu.max": "25000 100000\n",
                "sys/fs/cgroup/user.slice/memory.max": f"{512 * MiB}\n",
                "sys/fs/cgroup/user.slice/job.scope/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/user.slice/job.scope/memory.max": f"{256 * MiB}\n",
            },
        )
        probe = SystemProbe(root=root)
        assert (probe.cpus(), probe.memory_bytes()) == (0.25, 256 * MiB)

    def test_version_2_without_limits(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/cpu.max": "max 100000\n",
            "sys/fs/cgroup/job/memory.max": "max\n",
        }
        probe = SystemProbe(root=write(tmp_path, files))
        assert probe.cpus() >= 1
        assert probe.memory_bytes() == psutil.virtual_memory().total

    def test_version_1(self, tmp_path: Path) -> None:
        root = write(
            tmp_path,
            {
                "proc/self/cgroup": "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "75000\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{128 * MiB}\n",
            },
        )
        probe = SystemProbe(root=root)
        assert (probe.cpus(), probe.memory_bytes()) == (0.75, 128 * MiB)

    def test_version_1_without_limits(self, tmp_path: Path) -> None:
        root = write(
            tmp_path,
            {
                "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
        )
        probe = SystemProbe(root=root)
        assert probe.cpus() >= 1
        assert probe.memory_bytes() == psutil.virtual_memory().total

    def test_in_a_container_the_top_folder_is_ours(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/../docker/abc\n",
            "sys/fs/cgroup/cpu.max": "10000 100000\n",
            "sys/fs/cgroup/memory.max": f"{64 * MiB}\n",
        }
        probe = SystemProbe(root=write(tmp_path, files))
        assert (probe.cpus(), probe.memory_bytes()) == (0.1, 64 * MiB)


def test_the_real_computer_can_be_asked() -> None:
    capacity = detect(SystemProbe()).capacity
    assert capacity.cpus > 0
    assert capacity.memory_bytes > 0
