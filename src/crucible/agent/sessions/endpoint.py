"""What sessions find at a job: where its program runs, with which variables, and what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable


@dataclass(frozen=True)
class JobContext:
    """`admit` puts a process under the job's limits, `pids` are the job's processes, `alive`: its program runs."""

    folder: Path
    env: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    admit: Callable[[int], None]
    pids: Callable[[], list[int]]
    alive: Callable[[], bool]
