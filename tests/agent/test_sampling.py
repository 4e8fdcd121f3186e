"""Test samples of real processes, of fake /proc trees, and of GPUs through a fake driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crucible.agent.process.sampling import GpuDevice, GpuReading, Nvml, Probe, SystemSampler, detect_devices
from crucible.agent.process.sampling.mounts import Mounts
from crucible.agent.process.sampling.processes import parse_ps, parse_stat, pids_with_variable, read_table, tree

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True)\\nwhile True: pass"])
child.wait()
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a parent in its own session with a busy child."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TEST_MARK": f"mark-{os.getpid()}"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process
    os.killpg(process.pid, 9)
    process.wait(10)
    process.stdout.close()


# Processes.


def test_a_real_tree_is_found_by_pid_by_group_and_by_mark(family: subprocess.Popen[bytes]) -> None:
    table = read_table()
    by_pid = [process.pid for process in tree(table, [family.pid])]
    assert len(by_pid) == 2
    assert [process.pid for process in tree(table, pgid=family.pid)] == by_pid
    assert sorted(pids_with_variable(f"TEST_MARK=mark-{os.getpid()}")) == by_pid
    assert tree(table, [2**22 + 1]) == []


def test_a_name_with_brackets_and_spaces_is_read() -> None:
    fields = "S 1 7 8 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 999 4096 3 0"
    process = parse_stat(f"42 (a) b (c) {fields}\n".encode())
    assert process is not None
    assert (process.pid, process.ppid, process.pgid, process.sid, process.start) == (42, 1, 7, 8, 999)
    assert process.seconds == 200 / os.sysconf("SC_CLK_TCK")
    assert process.rss == 3 * os.sysconf("SC_PAGE_SIZE")
    assert parse_stat(b"") is None
    assert parse_stat(b"42 (cut short) S 1") is None


def test_ps_is_read_where_there_is_no_proc(tmp_path: Path, family: subprocess.Popen[bytes]) -> None:
    table = read_table(str(tmp_path / "none"))
    members = tree(table, [family.pid])
    assert len(members) == 2
    assert sum(process.rss for process in members) > 2**20


def test_ps_times_of_linux_and_macos() -> None:
    rows = "1 0 1 100 Ss 0:01.50\n2 1 1 50 Z 00:00:03\n3 1 1 50 R+ 2-01:00:00\nnonsense\n"
    table = parse_ps(rows)
    assert [table[pid].seconds for pid in (1, 2, 3)] == [1.5, 3.0, 176400.0]
    assert table[1].rss == 102400
    assert [process.pid for process in tree(table, [1])] == [1, 3]


# Samples.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fake_process(proc: Path, pid: int, ppid: int, seconds: float, start: int = 5) -> None:
    ticks = int(seconds * os.sysconf("SC_CLK_TCK"))
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{pid} (p) S {ppid} {pid} {pid} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start} 0 10 0")
    (folder / "io").write_text("rchar: 9\nread_bytes: 100\nwrite_bytes: 50\ncancelled_write_bytes: 7\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "stat").touch()
    (proc / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n")
    fake_process(proc, 10, 1, 1.0)
    fake_process(proc, 11, 10, 2.0)
    fake_process(proc, 99, 1, 50.0)
    return proc


def test_cpu_is_what_the_tree_spent_since_the_sample_before(proc: Path, tmp_path: Path) -> None:
    clock = Clock()
    sampler = SystemSampler(str(proc), str(tmp_path / "sys"), clock=clock)
    assert sampler.sample([10]).cpu_percent is None
    clock.now = 2.0
    fake_process(proc, 10, 1, 2.0)
    fake_process(proc, 11, 10, 4.0)
    fake_process(proc, 12, 10, 1.0)
    sample = sampler.sample([10])
    assert sample.cpu_percent == pytest.approx(200.0)
    assert sample.cpu_seconds == pytest.approx(7.0)
    assert sample.processes == 3
    clock.now = 3.0
    fake_process(proc, 11, 10, 0.5, start=77)
    assert sampler.sample([10]).cpu_percent == pytest.approx(50.0)


def test_sizes_of_the_machine_and_of_the_tree(proc: Path, tmp_path: Path) -> None:
    sample = SystemSampler(str(proc), str(tmp_path / "sys"), disk=str(tmp_path)).sample([10])
    assert sample.rss_bytes == 20 * os.sysconf("SC_PAGE_SIZE")
    assert (sample.memory_total, sample.memory_available) == (1024000, 409600)
    assert (sample.read_bytes, sample.write_bytes) == (200, 100)
    assert sample.disk_free is not None
    assert sample.disk_free > 0
    assert sample.gpus == ()


def test_nothing_alive_is_a_sample_too(proc: Path, tmp_path: Path) -> None:
    sampler = SystemSampler(str(proc), str(tmp_path / "sys"), disk=str(tmp_path / "none"))
    sample = sampler.sample([12345])
    assert (sample.processes, sample.rss_bytes, sample.read_bytes, sample.disk_free) == (0, 0, None, None)


def test_a_busy_process_is_seen_busy(family: subprocess.Popen[bytes]) -> None:
    sampler = SystemSampler()
    first = sampler.sample(pgid=family.pid)
    end = time.monotonic() + 20
    while sampler.sample(pgid=family.pid).cpu_seconds < first.cpu_seconds + 0.1:
        assert time.monotonic() < end
    assert first.rss_bytes > 2**20


def test_fifty_processes_cost_little(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for pid in range(100, 150):
        fake_process(proc, pid, pid - 1, 1.0)
    (proc / "stat").touch()
    sampler = SystemSampler(str(proc), str(tmp_path / "sys"))

    def timed() -> float:
        begin = time.thread_time()
        assert sampler.sample([100]).processes == 50
        return time.thread_time() - begin

    assert min(timed() for _ in range(10)) < 0.01


# GPUs.


class Driver:
    """A fake driver library with `count` GPUs. Calls named in `unsupported` fail, as on some real GPUs."""

    def __init__(self, count: int = 1, unsupported: tuple[str, ...] = (), init: int = 0) -> None:
        self._count, self._unsupported, self._init = count, unsupported, init

    def __getattr__(self, name: str) -> Any:
        if name in self._unsupported:
            return lambda *_: 3
        return getattr(self, f"do_{name[4:]}")

    def do_Init_v2(self) -> int:
        return self._init

    def do_DeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = self._count
        return 0

    def do_DeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        out._obj.value = index.value + 1
        return 0

    def do_DeviceGetMemoryInfo(self, handle: Any, out: Any) -> int:
        out._obj.total, out._obj.used = 80 * 2**30, handle.value * 2**30
        return 0

    def do_DeviceGetUtilizationRates(self, handle: Any, out: Any) -> int:
        out._obj.gpu = 97
        return 0

    def do_DeviceGetTemperature(self, handle: Any, sensor: Any, out: Any) -> int:
        out._obj.value = 61
        return 0

    def do_DeviceGetPowerUsage(self, handle: Any, out: Any) -> int:
        out._obj.value = 312500
        return 0

    def do_DeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = b"NVIDIA H100"
        return 0

    def do_DeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = b"GPU-%d" % handle.value
        return 0


def test_nvml_readings(proc: Path) -> None:
    gpus = SystemSampler(str(proc), nvml=Nvml(Driver(2))).sample([10]).gpus
    assert gpus == (
        GpuReading(0, 97.0, 2**30, 80 * 2**30, 61.0, 312.5),
        GpuReading(1, 97.0, 2 * 2**30, 80 * 2**30, 61.0, 312.5),
    )


def test_what_a_gpu_does_not_support_is_none() -> None:
    driver = Driver(unsupported=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"))
    (reading,) = Nvml(driver).readings()
    assert (reading.util, reading.power, reading.temperature) == (None, None, 61.0)


def test_a_driver_that_does_not_start_has_no_gpus() -> None:
    assert Nvml(Driver(init=9)).readings() == []
    assert Nvml(Driver(unsupported=("nvmlDeviceGetCount_v2",))).devices() == []
    assert Nvml(Driver(unsupported=("nvmlDeviceGetHandleByIndex_v2",))).devices() == []


def test_no_driver_is_none() -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert Nvml.load() is None


def test_amd_gpus_from_files(proc: Path, tmp_path: Path) -> None:
    device = tmp_path / "sys" / "class" / "drm" / "card0" / "device"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    (device / "gpu_busy_percent").write_text("42\n")
    (device / "mem_info_vram_used").write_text("1000\n")
    (device / "mem_info_vram_total").write_text("4000\n")
    (device / "hwmon" / "hwmon3" / "temp1_input").write_text("55000\n")
    gpus = SystemSampler(str(proc), str(tmp_path / "sys")).sample([10]).gpus
    assert gpus == (GpuReading(0, 42, 1000, 4000, 55.0, None),)


# Devices.


class Machine:
    """A fake machine."""

    def __init__(
        self,
        files: dict[str, str] | None = None,
        system: tuple[str, str] = ("Linux", "x86_64"),
        gpus: Nvml | None = None,
    ) -> None:
        self._files, self._system, self._gpus = files or {}, system, gpus

    def system(self) -> tuple[str, str]:
        return self._system

    def allowed_cpus(self) -> int:
        return 8

    def physical_memory(self) -> int:
        return 32 * 2**30

    def read(self, path: str) -> str | None:
        return self._files.get(path)

    def gpus(self) -> Nvml | None:
        return self._gpus


V2 = {
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "/proc/self/cgroup": "0::/a/b\n",
}
V1 = {
    "/proc/self/mountinfo": (
        "32 31 0:29 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    ),
    "/proc/self/cgroup": "4:memory:/jobs/1\n1:cpu,cpuacct:/docker/x\n",
}


def test_this_machine() -> None:
    devices = detect_devices(Probe())
    assert 0 < devices.cpus <= (os.cpu_count() or 1)
    assert devices.memory_bytes > 2**20


def test_a_plain_machine() -> None:
    devices = detect_devices(Machine())
    assert (devices.cpus, devices.memory_bytes, devices.gpus) == (8.0, 32 * 2**30, ())
    assert (devices.mps, devices.kind) == (False, "cpu")


def test_limits_of_v2_hold_wherever_above_us_they_are_set() -> None:
    root = "/sys/fs/cgroup"
    files = {f"{root}/a/cpu.max": "150000 100000\n", f"{root}/a/b/cpu.max": "max 100000\n"}
    files |= {f"{root}/a/b/memory.max": "1073741824\n", f"{root}/a/memory.max": "max\n"}
    devices = detect_devices(Machine({**V2, **files}))
    assert (devices.cpus, devices.memory_bytes) == (1.5, 2**30)


def test_limits_of_v1_in_a_container() -> None:
    cpu, memory = "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"
    files = {f"{cpu}/cpu.cfs_quota_us": "50000\n", f"{cpu}/cpu.cfs_period_us": "100000\n"}
    files |= {
        f"{memory}/jobs/1/memory.limit_in_bytes": "9223372036854771712\n",
        f"{memory}/jobs/memory.limit_in_bytes": "2147483648\n",
    }
    devices = detect_devices(Machine({**V1, **files}))
    assert (devices.cpus, devices.memory_bytes) == (0.5, 2**31)


def test_no_quota_is_no_limit() -> None:
    cpu = "/sys/fs/cgroup/cpu,cpuacct"
    files = {f"{cpu}/cpu.cfs_quota_us": "-1\n", f"{cpu}/cpu.cfs_period_us": "100000\n"}
    assert detect_devices(Machine({**V1, **files})).cpus == 8.0


def test_cuda_and_apple_silicon() -> None:
    devices = detect_devices(Machine(gpus=Nvml(Driver(2))))
    assert devices.kind == "cuda"
    assert devices.gpus[1] == GpuDevice(1, "NVIDIA H100", 80 * 2**30, "GPU-2")
    apple = detect_devices(Machine(system=("Darwin", "arm64")))
    assert (apple.mps, apple.kind) == (True, "mps")
    assert detect_devices(Machine(system=("Darwin", "x86_64"))).kind == "cpu"


def test_only_octal_escapes_of_a_mounted_path_are_decoded() -> None:
    mounts = Mounts.parse(r"1 2 0:3 /a\040b /größe\040\134n/cg rw - cgroup2 cgroup2 rw", "0::/a b/own")
    assert mounts.own_folders("") == [r"/größe \n/cg/own", r"/größe \n/cg"]


def test_a_group_outside_what_is_mounted_counts_as_the_root() -> None:
    mounts = Mounts.parse("1 2 0:3 /docker/x /cg rw - cgroup2 cgroup2 rw", "0::/../other")
    assert mounts.own_folders("") == ["/cg"]
    assert mounts.own_folders("memory") == []
