"""Resources that a job needs and capacity that a machine has, in the same units.

Memory is in bytes, CPUs may be fractions, time is in seconds. `parse_memory` and `parse_duration` read what
users write; the `format_*` functions format values for them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from crucible.core.errors import BadInput

MiB = 1024**2
GiB = 1024**3
MAX_CPUS = 4096
MAX_MEMORY = 64 * 1024 * GiB
MAX_GPUS = 4096
MAX_SECONDS = 366 * 24 * 3600
MIN_MEMORY = 16 * MiB

_MEMORY = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(d|h|m(?!s)|s)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class Resources(BaseModel):
    """The resources that a job requests. None: all that the machine has; no time limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    cpus: Annotated[float, Field(ge=0.01, le=MAX_CPUS)] | None = None
    memory_bytes: Annotated[int, Field(ge=MIN_MEMORY, le=MAX_MEMORY)] | None = None
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0
    gpu_memory_bytes: Annotated[int, Field(ge=0, le=MAX_MEMORY)] | None = None
    seconds: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = None

    def merged_onto(self, base: Resources) -> Resources:
        """Merge onto a tier's resources: values set here override; None and 0 count as not set.

        Decides by value, not by which fields are set, so that a spec means the same after a round trip through JSON.
        """
        overrides = {name: value for name, value in self if value}
        return base.model_copy(update=overrides)

    @property
    def whole_machine(self) -> bool:
        return self.cpus is None and self.memory_bytes is None


class Capacity(BaseModel):
    """What a machine has, or what is left of it. GPUs are counted by index."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    gpu_memory_bytes: int = 0
    gpu_name: str = ""


class Allocation(BaseModel):
    """The slots of a machine that one attempt occupies, and `seconds` if they are all that its money buys there."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    seconds: float | None = Field(default=None, exclude_if=lambda value: value is None)


def parse_memory(text: str) -> int:
    """Parse `512Mi`, `4GB`, `1.5g` or `1048576` to bytes. Binary and decimal units both mean powers of 1024."""
    found = _MEMORY.fullmatch(text)
    if not found:
        raise BadInput(f"{text!r} is not a valid amount of memory.", fix="Write it like 512Mi, 4G or 1.5GB.")
    return int(Fraction(found[1]) * 1024 ** _POWERS[found[2].lower()])


def parse_duration(text: str) -> float:
    """Parse `90`, `30s`, `10m`, `1h30m` or `2d` to seconds."""
    stripped = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", stripped):
        return float(stripped)
    parts = _DURATION.findall(stripped)
    if not parts or _DURATION.sub("", stripped).strip():
        raise BadInput(f"{text!r} is not a valid duration.", fix="Write it like 90s, 10m, 1h30m or 2d.")
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)


def format_memory(size: float) -> str:
    """Format bytes as `512 MiB` or `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def format_duration(seconds: float) -> str:
    """Format seconds as `42s`, `3m 20s`, `2h 05m` or `3d 4h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"
