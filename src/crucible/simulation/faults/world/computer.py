"""A simulated computer whose slots several backends may share out. It may sleep, lose its network, or restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.core.compute.offers import Node
from crucible.core.compute.resources import Capacity
from crucible.simulation.faults.world.machine import SimulatedMachine
from crucible.simulation.faults.world.network import NetworkLink
from crucible.simulation.faults.world.task_group import TaskGroup


@dataclass
class Computer:
    """`machines` are those of all backends that exist there now. `away`: it sleeps or is down, and nothing reaches it.

    `link` is its own network, behind the links of its machines.
    """

    node: Node
    size: Capacity
    machines: list[SimulatedMachine] = field(default_factory=list)
    link: NetworkLink = field(default_factory=NetworkLink)
    away: bool = False

    def task_groups(self) -> list[TaskGroup]:
        """Return the task groups of everything of ours that runs there."""
        return [group for machine in self.machines for group in machine.task_groups()]

    def wake(self, slept: float, *, clock_stood: bool) -> None:
        """Wake it after `slept` seconds. `clock_stood`: its boot-time clock stood still meanwhile."""
        self.away = False
        for machine in self.machines if clock_stood else ():
            machine.stood_still(slept)

    def halt(self) -> None:
        """Kill the hosts; what they started continues."""
        for machine in self.machines:
            if machine.host is not None:
                machine.host.kill()

    def disconnect(self) -> None:
        """Cut it off from everything. What runs there continues."""
        self.away = self.link.cut = True

    def reconnect(self) -> None:
        self.away = self.link.cut = False

    def restart(self) -> None:
        """End every process there. The files stay."""
        for machine in self.machines:
            machine.die()
