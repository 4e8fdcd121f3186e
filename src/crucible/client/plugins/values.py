"""A model plugin as it was described by its own Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.wire.options import Option


@dataclass(frozen=True)
class Fault:
    """Why a plugin cannot be used, in its own words; `traceback` where something of its own was raised."""

    text: str
    traceback: str | None = None


@dataclass(frozen=True)
class Plugin:
    """A model that a package offers. `schema` None takes any config; with a `fault` all below it is unknown.

    `package` is the folder or file of the top-level package it is in, where that is one path.
    """

    name: str
    entry: str
    distribution: str
    distribution_version: str
    python: str
    fault: Fault | None = None
    version: str = ""
    description: str = ""
    framework: str = ""
    min_gpu_memory_gb: float = 0
    methods: tuple[str, ...] = ()
    schema: Mapping[str, Option] | None = None
    package: Path | None = None

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "entry": self.entry,
            "distribution": self.distribution,
            "distribution_version": self.distribution_version,
            "python": self.python,
            "version": self.version,
            "description": self.description,
            "framework": self.framework,
            "min_gpu_memory_gb": self.min_gpu_memory_gb,
            "methods": list(self.methods),
            "schema": None if self.schema is None else {name: item.as_json() for name, item in self.schema.items()},
            "error": None if self.fault is None else {"text": self.fault.text, "traceback": self.fault.traceback},
        }
