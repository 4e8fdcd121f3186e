"""The computer and the commit of a measurement, without names of the computer or a person."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

GIT_DEADLINE = 60.0
OWN = ("benchmarks/results", "docs/reliability.md")
"""Files that a run itself writes; they do not count as changes of the tree."""


class Machine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: int
    memory_gib: float
    python: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.memory_gib:g} GiB, Python {self.python}, {self.kernel}"


class Source(BaseModel):
    """`commit` is None without git; `clean` is true if the tree equals that commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    clean: bool


def this_machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        kernel=f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
    )


def this_source(root: Path) -> Source:
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in OWN))
    return Source(commit=commit, clean=commit is not None and changed == "")


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=GIT_DEADLINE
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
