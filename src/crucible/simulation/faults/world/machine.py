"""A simulated machine: a host, its runners, their programs and a disk, until the machine dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crucible.agent.host.host_state import Key
from crucible.simulation.faults.fault_rates import RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.world.attempt_folder import SimulatedAttemptFolder
from crucible.simulation.faults.world.host import SimulatedHost
from crucible.simulation.faults.world.network import Network, NetworkLink, Request
from crucible.simulation.faults.world.program import SimulatedProgram
from crucible.simulation.faults.world.runner import SimulatedRunner
from crucible.simulation.faults.world.task_group import TaskGroup

T = TypeVar("T")

DRIFT = 0.02
"""Largest relative error of a machine's clock rate."""


@dataclass(frozen=True)
class MachineEnvironment:
    """What all machines share."""

    network: Network
    truth: GroundTruth
    trace: Trace
    rng: RandomStream


class SimulatedMachine:
    """`name` is the control plane's id, `native_id` the backend's. `on_host_exit` is called when the host leaves,
    `on_refused` if it may not claim the machine.

    `node` is the id of the computer on which it is; empty if nothing else is there.
    `reclaimed_at` is when the backend will reclaim the machine, on this machine's clock; None until it is announced.
    """

    def __init__(
        self,
        name: str,
        native_id: str,
        nonce: str,
        environment: MachineEnvironment,
        on_host_exit: Callable[[], object],
        idle_exit: float,
    ) -> None:
        self.name, self.native_id, self.nonce = name, native_id, nonce
        self.idle_exit_seconds = idle_exit
        self.on_host_exit = on_host_exit
        self.truth, self.trace, self.rng = environment.truth, environment.trace, environment.rng
        self._network = environment.network
        self._booted = environment.rng.uniform(0.0, 1e6)
        self._rate = environment.rng.uniform(1.0 - DRIFT, 1.0 + DRIFT)
        self.link = NetworkLink()
        self.node = ""
        self.on_refused: Callable[[], object] = lambda: None
        self.claimed = False
        self.reclaimed_at: float | None = None
        self.disk: dict[Key, SimulatedAttemptFolder] = {}
        self.runners: dict[Key, SimulatedRunner] = {}
        self.programs: dict[Key, SimulatedProgram] = {}
        self.host: SimulatedHost | None = None

    def clock(self) -> float:
        """Return the boot-time clock: it is never set, and every machine has its own start and rate."""
        return asyncio.get_running_loop().time() * self._rate + self._booted

    def task_groups(self) -> list[TaskGroup]:
        """Return the task groups of everything that runs on it."""
        hosts = [] if self.host is None else [self.host.tasks]
        runners = [runner.tasks for runner in self.runners.values()]
        return [*hosts, *runners, *(program.tasks for program in self.programs.values())]

    def stood_still(self, seconds: float) -> None:
        """Set the clock back by the time of a sleep in which it stood still."""
        self._booted -= seconds * self._rate

    def chance(self) -> float:
        return self.rng.uniform(0.0, 1.0)

    async def call(self, request: Request[T], deadline: float) -> T:
        return await self._network.call(self.link, request, deadline)

    def start_host(self) -> None:
        """Start a host unless one runs. It adopts the runners that are still alive."""
        if self.host is None or not self.host.alive:
            self.host = SimulatedHost(self)
            self.host.start()

    @property
    def halted(self) -> bool:
        return self.host is None or not self.host.alive

    @property
    def is_busy(self) -> bool:
        """Whether a program runs there."""
        return any(program.alive for program in self.programs.values())

    def runner_left(self, key: Key) -> None:
        if self.host is not None:
            self.host.runner_left(key)

    def notice(self, seconds: float) -> None:
        """Announce that the machine will be reclaimed in this many seconds."""
        self.reclaimed_at = self.clock() + seconds

    def die(self) -> None:
        """End everything on the machine at once, without any message."""
        if self.host is not None:
            self.host.kill()
        for runner in self.runners.values():
            runner.kill()
        for program in self.programs.values():
            program.die()
