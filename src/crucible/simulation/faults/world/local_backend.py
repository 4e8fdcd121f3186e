"""The simulated backend `local`: one laptop with counted slots, which bills nothing and may sleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible.backends.base import (
    Capabilities,
    LaunchCall,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Observation,
    Reach,
    Seen,
    Slots,
)
from crucible.core.compute.offers import Offer
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.errors import Unreachable
from crucible.simulation.faults.fault_rates import FaultRates
from crucible.simulation.faults.world.machine import MachineEnvironment, SimulatedMachine
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.wire.documents.bootstrap import Bootstrap

SIZE = Capacity(cpus=2, memory_bytes=8 * GiB)
IDLE_EXIT_SECONDS = 120.0


class SimulatedLocalBackend:
    """The backend `local` and the laptop behind it. `on_terminate` is called with every machine to terminate."""

    name = "local"
    capabilities = Capabilities(
        reach=Reach.LOOPBACK, slots=Slots.COUNTED, bills=False, shared_machines=True, in_place=True
    )

    def __init__(self, environment: MachineEnvironment, faults: FaultRates) -> None:
        self._environment = environment
        self._faults = faults
        self.machines: dict[str, SimulatedMachine] = {}
        self.removed: set[str] = set()
        self.asleep = False
        self.on_terminate: Callable[[SimulatedMachine], None] = lambda machine: None

    def offers(self, need: Resources) -> Sequence[Offer]:
        return [Offer(self.name, "here", "this computer", SIZE, 0)]

    def call(self, order: MachineOrder) -> LaunchCall:
        return LaunchCall(self.name, order.machine, "start", {"deployment": order.deployment})

    def launch(self, call: LaunchCall, bootstrap: Bootstrap) -> MachineRef:
        if self.asleep:
            raise LaunchUnknown("It sleeps.")
        if call.token not in self.machines:
            name = f"here-{len(self.machines) + 1}"
            machine = SimulatedMachine(
                call.token, name, bootstrap.nonce, self._environment, lambda: None, IDLE_EXIT_SECONDS
            )
            self.machines[call.token] = machine
            self._environment.trace(name, f"is {call.token}")
        if call.token not in self.removed:
            self.machines[call.token].start_host()
        if self._faults.strikes("create.lost"):
            raise LaunchUnknown("It did not answer.")
        return self._ref(call.token)

    def find(self, token: str) -> MachineRef | None:
        return self._ref(token) if token in self.machines and token not in self.removed else None

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        return [Observation(ref, self._seen(ref.machine)) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        if self.asleep:
            raise Unreachable("It sleeps.")
        if ref.machine in self.machines:
            self.on_terminate(self.machines[ref.machine])
            self.removed.add(ref.machine)
            self.machines[ref.machine].die()

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        return [self._ref(token) for token in self.machines if token not in self.removed]

    def task_groups(self) -> list[TaskGroup]:
        """Return the task groups of everything of ours that runs on the laptop."""
        here = [machine for token, machine in self.machines.items() if token not in self.removed]
        return [group for machine in here for group in machine.task_groups()]

    def wake(self, slept: float, *, clock_stood: bool) -> None:
        """Wake the laptop after `slept` seconds. `clock_stood`: its boot-time clock stood still meanwhile."""
        self.asleep = False
        for machine in self.machines.values() if clock_stood else ():
            machine.stood_still(slept)

    def halt(self) -> None:
        """Kill the hosts; what they started continues."""
        for machine in self.machines.values():
            if machine.host is not None:
                machine.host.kill()

    def _seen(self, token: str) -> Seen:
        machine = self.machines.get(token)
        if self.asleep:
            return Seen.UNREACHABLE
        if machine is None or token in self.removed:
            return Seen.GONE
        return Seen.HALTED if machine.halted else Seen.UP

    def _ref(self, token: str) -> MachineRef:
        return MachineRef(self.name, token, self.machines[token].native_id, "here")
