"""Processes as /proc shows them: for tests that look at what a worker leaves behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crucible.analysis import Limits

PATIENCE = 60.0
GENEROUS = Limits(cpu_seconds=30.0, wall_seconds=PATIENCE)
"""For tests that look at other things than time: other work on this computer takes the processor for a while."""


@dataclass(frozen=True)
class Process:
    pid: int
    state: str
    parent: int
    group: int
    ticks: int
    """Of processor time, its own and the kernel's for it."""

    @property
    def descriptors(self) -> dict[int, str]:
        folder = Path(f"/proc/{self.pid}/fd")
        found = {}
        for each in os.listdir(folder):
            try:
                found[int(each)] = os.readlink(folder / each)
            except FileNotFoundError:
                continue  # closed meanwhile
        return found


def process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    rest = text.rpartition(")")[2].split()
    return Process(pid, rest[0], int(rest[1]), int(rest[2]), int(rest[11]) + int(rest[12]))


def everyone() -> list[Process]:
    pids = (int(each) for each in os.listdir("/proc") if each.isdigit())
    return [found for pid in pids if (found := process(pid)) is not None]


def children(pid: int) -> list[Process]:
    return [each for each in everyone() if each.parent == pid]


def alive(group: int) -> list[Process]:
    """Those of a process group that have not ended."""
    return [each for each in everyone() if each.group == group and each.state != "Z"]


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.001)
