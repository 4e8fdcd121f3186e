"""Read a machine's hardware and a job's usage of it from /proc, /sys, NVML and `ps`."""

from __future__ import annotations

from crucible.agent.process.sampling.devices import Devices, Probe, detect_devices
from crucible.agent.process.sampling.nvml import GpuDevice, GpuReading, Nvml
from crucible.agent.process.sampling.sampler import Sample, SystemSampler

__all__ = [
    "Devices",
    "GpuDevice",
    "GpuReading",
    "Nvml",
    "Probe",
    "Sample",
    "SystemSampler",
    "detect_devices",
]
