"""Sample a running job every few seconds, and enforce its memory limit where the kernel does not."""

from __future__ import annotations

import logging
import time
from typing import Optional

from crucible.agent.output.telemetry import Telemetry
from crucible.agent.process.limits import Confinement, ProcessesRemain
from crucible.agent.process.sampling import Nvml, Sample, SystemSampler

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0
FIRST_SECONDS = 1.0
GUARD_SECONDS = 1.0


class Meter:
    """Call `tick` often; it samples only when due."""

    def __init__(self, pgid: int, confinement: Confinement, telemetry: Telemetry, gpus: tuple[int, ...]) -> None:
        self._pgid = pgid
        self._confinement = confinement
        self._telemetry = telemetry
        self._gpus = gpus
        self._sampler: Optional[SystemSampler] = None
        self._sample_at = time.monotonic() + FIRST_SECONDS
        self._guard_at = time.monotonic() + GUARD_SECONDS

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._guard_at:
            self._guard_at = now + GUARD_SECONDS
            self._guard()
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_SECONDS
            self._telemetry.add_sample(_series(self._sample(), self._gpus))

    def _sample(self) -> Sample:
        if self._sampler is None:
            # Loaded late, so that a short job does not wait for NVML.
            self._sampler = SystemSampler(nvml=Nvml.load())
        return self._sampler.sample(self._confinement.pids(), self._pgid)

    def _guard(self) -> None:
        try:
            self._confinement.tick()
        except ProcessesRemain as error:
            log.error("the job exceeds its memory limit and cannot be killed: %s", error)


def _series(sample: Sample, gpus: tuple[int, ...]) -> dict[str, float]:
    values: dict[str, float | None] = {
        "system.cpu_percent": sample.cpu_percent,
        "system.memory_bytes": sample.rss_bytes,
    }
    for gpu in sample.gpus:
        if not gpus or gpu.index in gpus:
            values[f"system.gpu{gpu.index}_utilisation"] = gpu.util
            values[f"system.gpu{gpu.index}_memory_bytes"] = gpu.memory_used
    return {name: value for name, value in values.items() if value is not None}
