"""Tiers: named sizes of jobs. A job may override any part of its tier."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.compute.resources import GiB, MiB, Resources, format_duration, format_memory
from crucible.core.errors import UnknownName
from crucible.core.views.compute import TierView


@dataclass(frozen=True)
class Tier:
    """A named size. `rate` is its list price in micro-dollars per hour; local backends charge nothing."""

    id: str
    name: str
    description: str
    resources: Resources
    rate: int
    instance_type: str = ""

    def view(self) -> TierView:
        """Return the tier for the API."""
        r = self.resources
        return TierView(
            id=self.id,
            name=self.name,
            description=self.description,
            cpu=r.cpus,
            memory=format_memory(r.memory_bytes or 0),
            gpu=f"{r.gpus} x {format_memory(r.gpu_memory_bytes or 0)}" if r.gpus else None,
            maxRuntime=format_duration(r.seconds or 0),
            costPerHour=self.rate / 1e6,
        )


def _tier(id: str, name: str, text: str, rate: int, instance: str = "", **size: float | int) -> Tier:
    return Tier(id, name, text, Resources.model_validate(size), rate, instance)


TIERS: dict[str, Tier] = {
    tier.id: tier
    for tier in (
        _tier(
            "CPU_SMALL",
            "Small CPU",
            "Half a core for quick checks",
            20_000,
            cpus=0.5,
            memory_bytes=512 * MiB,
            seconds=30,
        ),
        _tier(
            "CPU_LARGE",
            "Large CPU",
            "Two cores for data work and small models",
            80_000,
            cpus=2,
            memory_bytes=4 * GiB,
            seconds=600,
        ),
        _tier(
            "GPU_SMALL",
            "Small GPU",
            "One 16 GB GPU for first experiments",
            526_000,
            "g4dn.xlarge",
            gpus=1,
            cpus=4,
            memory_bytes=16 * GiB,
            gpu_memory_bytes=16 * GiB,
            seconds=7200,
        ),
        _tier(
            "GPU_MEDIUM",
            "Medium GPU",
            "One 16 GB GPU and more CPU, for a working day",
            752_000,
            "g4dn.2xlarge",
            gpus=1,
            cpus=8,
            memory_bytes=32 * GiB,
            gpu_memory_bytes=16 * GiB,
            seconds=8 * 3600,
        ),
        _tier(
            "GPU_LARGE",
            "Large GPU",
            "One 24 GB GPU for a day of training",
            2_012_000,
            "g5.2xlarge",
            gpus=1,
            cpus=8,
            memory_bytes=32 * GiB,
            gpu_memory_bytes=24 * GiB,
            seconds=24 * 3600,
        ),
    )
}

DEFAULT_TIER = "CPU_SMALL"
"""The default of training requests; `crucible run` has no default tier."""


def get_tier(name: str) -> Tier:
    """Return the tier of this name, in any case and with - or _. Raises UnknownName."""
    tier = TIERS.get(name.upper().replace("-", "_"))
    if tier is None:
        raise UnknownName("tier", name, TIERS, fix="`crucible tiers` lists them.")
    return tier


def effective_resources(tier: str | None, requested: Resources) -> Resources:
    """Return the job's resources: its own merged onto its tier's."""
    return requested.merged_onto(get_tier(tier).resources) if tier else requested
