"""A simulated backend over computers that are there anyway: it bills nothing, and its offers are their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible.backends.base import (
    Capabilities,
    Finding,
    LaunchCall,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Observation,
    Reach,
    Seen,
)
from crucible.core.compute.offers import Need, Nodes, Offer
from crucible.core.errors import Unreachable
from crucible.simulation.faults.fault_rates import FaultRates
from crucible.simulation.faults.world.computer import Computer
from crucible.simulation.faults.world.machine import MachineEnvironment, SimulatedMachine
from crucible.wire.documents.bootstrap import Bootstrap

IDLE_EXIT_SECONDS = 120.0


class SimulatedNodeBackend:
    """A backend over these computers. `on_terminate` is called with every machine to terminate.

    `shared`: attempts on a computer share one machine; otherwise each has its own there.
    """

    def __init__(
        self,
        name: str,
        computers: Sequence[Computer],
        environment: MachineEnvironment,
        faults: FaultRates,
        *,
        shared: bool = True,
        reach: Reach = Reach.SAME_COMPUTER,
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(
            reach=reach, capacity=Nodes(shared=shared), bills=False, in_place=reach is Reach.SAME_COMPUTER
        )
        self._computers = {computer.node.id: computer for computer in computers}
        self._environment = environment
        self._faults = faults
        self._made: dict[str, tuple[SimulatedMachine, Computer]] = {}
        self._removed: set[str] = set()
        self.on_terminate: Callable[[SimulatedMachine], None] = lambda machine: None

    def offers(self, need: Need) -> Sequence[Offer]:
        return [
            Offer(
                self.name,
                "here",
                computer.node.name,
                computer.size,
                0,
                node=computer.node,
                why_not="it does not answer" if computer.link.cut else "",
            )
            for computer in self._computers.values()
        ]

    def call(self, order: MachineOrder) -> LaunchCall:
        assert order.offer.node is not None, "all offers here are nodes"
        parameters: dict[str, object] = {"deployment": order.deployment, "node": order.offer.node.id}
        return LaunchCall(self.name, order.machine, "start", parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        (bootstrap,) = bootstraps
        computer = self._computers[str(call.parameters["node"])]
        if computer.away:
            raise LaunchUnknown("It does not answer.")
        if call.token not in self._made:
            self._made[call.token] = self._make(call.token, bootstrap.nonce, computer), computer
        if call.token not in self._removed:
            self._made[call.token][0].start_host()
        if self._faults.strikes("create.lost"):
            raise LaunchUnknown("It did not answer.")
        return [self._ref(call.token)]

    def _make(self, token: str, nonce: str, computer: Computer) -> SimulatedMachine:
        name = f"{computer.node.id}-{self.name}-{len(self._made) + 1}"
        machine = SimulatedMachine(token, name, nonce, self._environment, lambda: None, IDLE_EXIT_SECONDS)
        machine.node, machine.link.behind = computer.node.id, computer.link
        computer.machines.append(machine)
        self._environment.trace(name, f"is {token}")
        return machine

    def find(self, token: str) -> Sequence[MachineRef]:
        known = self._made.get(token)
        asked = self._computers.values() if known is None else (known[1],)
        if any(computer.away for computer in asked):
            raise Unreachable("It does not answer.")
        return [self._ref(token)] if known is not None and token not in self._removed else []

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        return [Observation(ref, self._seen(ref.machine)) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        if ref.machine not in self._made or ref.machine in self._removed:
            return
        machine, computer = self._made[ref.machine]
        if computer.away:
            raise Unreachable("It does not answer.")
        self.on_terminate(machine)
        self._removed.add(ref.machine)
        computer.machines.remove(machine)
        machine.die()

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        return [
            self._ref(token)
            for token, (_, computer) in self._made.items()
            if token not in self._removed and not computer.link.cut
        ]

    def check(self) -> Sequence[Finding]:
        return []

    def _seen(self, token: str) -> Seen:
        known = self._made.get(token)
        if known is None or token in self._removed:
            return Seen.GONE
        machine, computer = known
        if computer.away:
            return Seen.UNREACHABLE
        return Seen.HALTED if machine.halted else Seen.UP

    def _ref(self, token: str) -> MachineRef:
        return MachineRef(self.name, token, self._made[token][0].native_id, "here")
