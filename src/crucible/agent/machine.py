"""The machine, as its host found it."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.agent.limits import Limiter
from crucible.wire.values import dataclass


@dataclass(frozen=True)
class Machine:
    """What a host knows of its machine and its runners need not find out again."""

    limiter: Limiter
    env: Mapping[str, str]
    has_gpus: bool = False
