"""A simulated machine: a host, its runners, their programs and a disk, until the power goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crucible.agent.host.host_state import Key
from crucible.simulation.faults.fault_rates import RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.world.attempt_folder import AttemptFolder
from crucible.simulation.faults.world.host import Host
from crucible.simulation.faults.world.network import Network, NetworkLink, Request
from crucible.simulation.faults.world.program import Program
from crucible.simulation.faults.world.runner import Runner
from crucible.simulation.faults.world.task_group import TaskGroup

T = TypeVar("T")

DRIFT = 0.02
"""By how much a machine's clock may be too fast or too slow."""


@dataclass(frozen=True)
class MachineEnvironment:
    """What all machines stand on."""

    network: Network
    truth: GroundTruth
    trace: Trace
    dice: RandomStream


class Machine:
    """`name` is our id of it, `native_id` its place's. `quits` is called when its host leaves.

    `taken_at` is when its place takes it back, on this machine's clock, once that is announced.
    """

    def __init__(
        self,
        name: str,
        native_id: str,
        nonce: str,
        ground: MachineEnvironment,
        quits: Callable[[], object],
        idle_exit: float,
    ) -> None:
        self.name, self.native_id, self.nonce = name, native_id, nonce
        self.idle_exit_seconds = idle_exit
        self.on_host_exit = quits
        self.truth, self.trace, self.dice = ground.truth, ground.trace, ground.dice
        self._network = ground.network
        self._booted = ground.dice.uniform(0.0, 1e6)
        self._rate = ground.dice.uniform(1.0 - DRIFT, 1.0 + DRIFT)
        self.link = NetworkLink()
        self.claimed = False
        self.reclaimed_at: float | None = None
        self.disk: dict[Key, AttemptFolder] = {}
        self.runners: dict[Key, Runner] = {}
        self.programs: dict[Key, Program] = {}
        self.host: Host | None = None

    def clock(self) -> float:
        """The boot-time clock: nobody sets it, no two machines' agree, and none runs as fast as another."""
        return asyncio.get_running_loop().time() * self._rate + self._booted

    def task_groups(self) -> list[TaskGroup]:
        """All that runs on it."""
        hosts = [] if self.host is None else [self.host.crew]
        runners = [runner.crew for runner in self.runners.values()]
        return [*hosts, *runners, *(program.crew for program in self.programs.values())]

    def stood_still(self, seconds: float) -> None:
        """Where the clock does not go on while the machine sleeps, it is as long behind."""
        self._booted -= seconds * self._rate

    def chance(self) -> float:
        return self.dice.uniform(0.0, 1.0)

    async def call(self, request: Request[T], deadline: float) -> T:
        return await self._network.call(self.link, request, deadline)

    def start_host(self) -> None:
        """Starts it unless it runs; a new one adopts what still runs."""
        if self.host is None or not self.host.alive:
            self.host = Host(self)
            self.host.start()

    @property
    def halted(self) -> bool:
        return self.host is None or not self.host.alive

    def runner_left(self, key: Key) -> None:
        if self.host is not None:
            self.host.runner_left(key)

    def notice(self, seconds: float) -> None:
        """Its place announces that it takes it back."""
        self.reclaimed_at = self.clock() + seconds

    def die(self) -> None:
        """The power goes: nothing of it runs, or is told, any more."""
        if self.host is not None:
            self.host.kill()
        for runner in self.runners.values():
            runner.kill()
        for program in self.programs.values():
            program.die()
