"""A simulated server process, which may die or freeze at any border between the control plane and the world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.control.reconcile import crashpoints
from crucible.simulation.faults.world.task_group import TaskGroup, task_group_of

PORT_WEIGHT, WRITE_WEIGHT, NAMED_WEIGHT = 1, 8, 40
"""How much each kind of border burns of a process's fuse: interesting ones burn more."""

DIES = "dies at "


class Crash(BaseException):
    """Raised inside a process that died, so that nothing after this point is done."""


class SimulatedProcess(TaskGroup):
    """A border is a point where the process meets the world: a read, a write, a commit, a call, a named crash point.

    `fuse` is the weight of borders that it may pass before it dies, or None if it never does; `ended` is set when it
    is dead. `halt` is the weight of borders whose names begin with `halts_at` that it may pass before it freezes;
    `on_halt` is then called with the name of the border.
    """

    def __init__(self, name: str, fuse: int | None, on_crash: Callable[[str], None]) -> None:
        super().__init__(name)
        self.fuse = fuse
        self._on_crash = on_crash
        self.ended = asyncio.Event()
        self.halt: int | None = None
        self.halts_at = ""
        self.on_halt: Callable[[str], None] = lambda where: None

    def border(self, name: str, weight: int = PORT_WEIGHT) -> None:
        """Mark a border. Raises Crash if the process is dead, or dies here."""
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
                self.on_halt(name)

    def crash(self, where: str) -> None:
        if self.alive:
            self._on_crash(f"{DIES}{where}")
            self.die()

    def die(self) -> None:
        super().die()
        self.ended.set()


def arm_all() -> None:
    """Make every named crash point a border of the process that reaches it."""
    for name in sorted(crashpoints.NAMES):
        crashpoints.arm(name, lambda name=name: _reached(name))  # type: ignore[misc]


def _reached(name: str) -> None:
    group = task_group_of(None)
    if isinstance(group, SimulatedProcess):
        group.border(name, NAMED_WEIGHT)
