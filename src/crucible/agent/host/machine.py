"""The machine, as its host found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.agent.process.limits import Limiter


@dataclass(frozen=True)
class MachineFacts:
    """What a host knows of its machine and its runners need not find out again."""

    limiter: Limiter
    env: Mapping[str, str]
    has_gpus: bool = False
