"""A control plane's process, which may die at any border between its parts and the world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.control.reconcile import crashpoints
from crucible.simulation.faults.world.task_group import TaskGroup, task_group_of

PORT_WEIGHT, WRITE_WEIGHT, NAMED_WEIGHT = 1, 8, 40
"""How much nearer to its death each kind of border brings a process: the interesting ones count for more."""

DIES = "dies at "


class Crash(BaseException):
    """The process died: nothing after it was done."""


class Process(TaskGroup):
    """`fuse` is how much may happen before it dies; None: it lives on. `ended` is set when it is dead.

    `halt` is how much may happen, at borders whose names begin with `halts_at`, before it stands still; `halted` is
    told where it does.
    """

    def __init__(self, name: str, fuse: int | None, told: Callable[[str], None]) -> None:
        super().__init__(name)
        self.fuse = fuse
        self._told = told
        self.ended = asyncio.Event()
        self.halt: int | None = None
        self.halts_at = ""
        self.halted: Callable[[str], None] = lambda where: None

    def border(self, name: str, weight: int = PORT_WEIGHT) -> None:
        """Marks one. Raises Crash when the process is dead, or dies here."""
        if not self.alive:
            raise Crash(self.name)
        if self.fuse is not None:
            self.fuse -= weight
            if self.fuse < 0:
                self.crash(name)
                raise Crash(name)
        if self.halt is not None and name.startswith(self.halts_at):
            self.halt -= weight
            if self.halt < 0:
                self.halt = None
                self.halted(name)

    def crash(self, where: str) -> None:
        if self.alive:
            self._told(f"{DIES}{where}")
            self.die()

    def die(self) -> None:
        super().die()
        self.ended.set()


def arm_all() -> None:
    """Every named crash point is a border of whichever process reaches it."""
    for name in sorted(crashpoints.NAMES):
        crashpoints.arm(name, lambda name=name: _reached(name))  # type: ignore[misc]


def _reached(name: str) -> None:
    crew = task_group_of(None)
    if isinstance(crew, Process):
        crew.border(name, NAMED_WEIGHT)
