"""Read NVIDIA GPUs through NVML by ctypes, and AMD GPUs through /sys."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional


@dataclass(frozen=True)
class GpuReading:
    """The state of a GPU. `util` in percent, memory in bytes, `temperature` in Celsius, `power` in watts."""

    index: int
    util: Optional[float]
    memory_used: Optional[int]
    memory_total: Optional[int]
    temperature: Optional[float]
    power: Optional[float]


@dataclass(frozen=True)
class GpuDevice:
    index: int
    name: str
    memory_bytes: int
    uuid: str


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """The NVML calls we need. A value that a GPU does not support is None."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._up = library.nvmlInit_v2() == 0

    @classmethod
    def load(cls) -> Optional[Nvml]:
        """Return NVML; None if there is no NVIDIA driver."""
        try:
            nvml = cls(ctypes.CDLL("libnvidia-ml.so.1"))
        except (OSError, AttributeError):
            return None
        return nvml if nvml._up else None

    def readings(self) -> list[GpuReading]:
        return [self._reading(index, handle) for index, handle in self._handles()]

    def devices(self) -> list[GpuDevice]:
        return [self._device(index, handle) for index, handle in self._handles()]

    def _handles(self) -> list[tuple[int, Any]]:
        number = ctypes.c_uint()
        if not self._up or self._library.nvmlDeviceGetCount_v2(ctypes.byref(number)) != 0:
            return []
        return [(index, handle) for index in range(number.value) if (handle := self._handle(index)) is not None]

    def _handle(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        status = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        return handle if status == 0 else None

    def _reading(self, index: int, handle: Any) -> GpuReading:
        memory, load = _Memory(), _Utilization()
        has_memory = self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        has_load = self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0
        temperature, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        sensor = ctypes.c_int(0)
        has_temperature = self._library.nvmlDeviceGetTemperature(handle, sensor, ctypes.byref(temperature)) == 0
        has_power = self._library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts)) == 0
        return GpuReading(
            index,
            float(load.gpu) if has_load else None,
            int(memory.used) if has_memory else None,
            int(memory.total) if has_memory else None,
            float(temperature.value) if has_temperature else None,
            milliwatts.value / 1000 if has_power else None,
        )

    def _device(self, index: int, handle: Any) -> GpuDevice:
        memory = _Memory()
        self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        name = self._text(self._library.nvmlDeviceGetName, handle)
        return GpuDevice(index, name, int(memory.total), self._text(self._library.nvmlDeviceGetUUID, handle))

    def _text(self, call: Any, handle: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode("utf-8", "replace") if call(handle, buffer, ctypes.c_uint(96)) == 0 else ""


def amd_readings(sys: str = "/sys") -> list[GpuReading]:
    """Return readings of AMD GPUs, from files of their driver."""
    cards = sorted(Path(sys).glob("class/drm/card[0-9]*/device/gpu_busy_percent"))
    return [_amd(index, path.parent) for index, path in enumerate(cards)]


def _amd(index: int, device: Path) -> GpuReading:
    temperature = next(iter(sorted(device.glob("hwmon/hwmon*/temp1_input"))), device / "none")
    power = next(iter(sorted(device.glob("hwmon/hwmon*/power1_average"))), device / "none")
    celsius, microwatts = _integer(temperature), _integer(power)
    return GpuReading(
        index,
        _integer(device / "gpu_busy_percent"),
        _integer(device / "mem_info_vram_used"),
        _integer(device / "mem_info_vram_total"),
        None if celsius is None else celsius / 1000,
        None if microwatts is None else microwatts / 1e6,
    )


def _integer(path: Path) -> Optional[int]:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
