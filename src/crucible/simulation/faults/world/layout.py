"""Which computers and backends a world has besides its cloud and its laptop. It differs between seeds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from crucible.backends.base import Reach
from crucible.core.compute.offers import Node
from crucible.core.compute.resources import Capacity, GiB
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.cluster import Cluster
from crucible.simulation.faults.world.cluster_backend import ClusterBackend
from crucible.simulation.faults.world.computer import Computer
from crucible.simulation.faults.world.machine import MachineEnvironment
from crucible.simulation.faults.world.node_backend import SimulatedNodeBackend

PLAIN_SHARE = 0.4
"""Share of the seeds with nothing but a cloud and a laptop."""
LAPTOP = Capacity(cpus=2, memory_bytes=8 * GiB)
HOST = Capacity(cpus=1, memory_bytes=4 * GiB)


@dataclass
class Layout:
    """The computers of a world and the backends over them. `hosts` may lose their network and restart."""

    laptop: Computer
    hosts: list[Computer] = field(default_factory=list)
    backends: list[SimulatedNodeBackend] = field(default_factory=list)
    cluster: Cluster | None = None
    cluster_backend: ClusterBackend | None = None

    @property
    def computers(self) -> list[Computer]:
        return [self.laptop, *self.hosts]

    @property
    def extra_names(self) -> list[str]:
        """Return the names of the backends that only this world has."""
        names = [backend.name for backend in self.backends if backend.name != "local"]
        return [*names, *(["cluster"] if self.cluster_backend else [])]


def make_layout(
    loop: asyncio.AbstractEventLoop, environment: MachineEnvironment, faults: FaultRates, rng: RandomStream
) -> Layout:
    """Return a laptop with the backend `local`, and in most worlds more: a second backend over it, hosts, a cluster."""
    laptop = Computer(Node("laptop", "this computer"), LAPTOP)
    layout = Layout(laptop, backends=[SimulatedNodeBackend("local", [laptop], environment, faults)])
    if rng.chance(PLAIN_SHARE):
        return layout
    if rng.chance(0.6):
        layout.backends.append(
            SimulatedNodeBackend("containers", [laptop], environment, faults, shared=False, reach=Reach.LOOPBACK)
        )
    if rng.chance(0.6):
        layout.hosts = [Computer(Node(f"host-{n}", f"host {n}"), HOST) for n in (1, 2)]
        shared = rng.chance(0.5)
        layout.backends.append(
            SimulatedNodeBackend("hosts", layout.hosts, environment, faults, shared=shared, reach=Reach.TUNNEL)
        )
    if rng.chance(0.5):
        layout.cluster = Cluster(loop, environment, faults, rng)
        layout.cluster_backend = ClusterBackend(layout.cluster, faults, rng)
    return layout
