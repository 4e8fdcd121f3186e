"""Simulated servers: processes of the control plane that die and are restarted on the same database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crucible.backends.base import Backend
from crucible.control.agents.agents import Agents
from crucible.control.control_plane import ControlPlane
from crucible.control.machines.machine_factory import LeaseTerms
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.background import BackgroundTasks
from crucible.control.runtime.loops import Loop
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment
from crucible.core.errors import CrucibleError
from crucible.core.ids import Prefix, make_id
from crucible.core.job.states import AttemptState
from crucible.core.lifecycle.facts import StopAttempt
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import virtual_loop
from crucible.simulation.faults.world.ports import (
    DelayedCalls,
    OrderedWakeups,
    ProcessDb,
    RisingIds,
    SeededRandom,
    WallClock,
    WatchedDb,
)
from crucible.simulation.faults.world.process import SimulatedProcess
from crucible.simulation.faults.world.store import MemoryStore
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.simulation.faults.world.webhook_receiver import WebhookReceiver

T = TypeVar("T")
Target = TypeVar("Target")

KEY = b"the simulated deployment's key"
DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
IDLE_DUTIES_ALONE = 120.0
"""Seconds between renewals of duties by the only server, which no other could take over."""
TERMS = LeaseTerms(lease_seconds=400.0, longest_seconds=2700.0)
MOST_NODES = 3
MEAN_FUSE = 2500.0
HALTS_AT = ("", "answer of cloud", "answer of cloud")
"""Where a server freezes: at any border, or more often with a response in hand that becomes stale."""
MAX_DOWNTIME = 45.0
MAX_HALT = 80
"""Largest weight of borders that a server passes before it freezes."""
IDLE = {
    "effects": 30.0,
    "sweep": 15.0,
    "duties": 15.0,
    "poller": 12.0,
    "offers": 60.0,
    "ledger": 60.0,
    "retention": 120.0,
    "mail": 240.0,
    "hooks": 60.0,
    "plans": 120.0,
}
"""Seconds between rounds without a wake-up. Longer than in a real process, to save CPU time, but within what the
rounds rely on: a sweep every 20 seconds, a duty renewed within 20.
"""


class PacedTasks(BackgroundTasks):
    """Background tasks with longer pauses."""

    def _make_loops(self) -> list[Loop]:
        alone = not self._services.deployment.shared
        return [Loop(loop.name, loop.topic, _paced(loop, alone)) for loop in super()._make_loops()]


def _paced(loop: Loop, alone: bool) -> Callable[[], Awaitable[float]]:
    idle = IDLE_DUTIES_ALONE if alone and loop.name == "duties" else IDLE.get(loop.name, 0.0)

    async def round() -> float:
        wait = await loop.round()
        return wait if wait < 1.0 else max(wait, idle)

    return round


class PacedControl(ControlPlane):
    """The real control plane, with longer pauses between its background tasks."""

    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        super().__init__(ports, backends, deployment)
        self._rounds = PacedTasks(self._services)

    async def stop_attempt(self, job: str, *, launching: bool = False) -> bool:
        """Ask the live attempt of a job to stop, without its job. Return whether there is one.

        `launching`: only one whose machines are still being made.
        """

        def stop(unit: UnitOfWork) -> bool:
            world = repository.load_world(unit.conn, job)
            if world is None or world.live is None:
                return False
            if launching and world.live.state is not AttemptState.LAUNCHING:
                return False
            unit.advance(world, StopAttempt(world.live.id, "its machine is needed"))
            return True

        return await self._services.writer.write(stop)


@dataclass(frozen=True)
class SharedWorld:
    """What all servers share, and what outlives each of them."""

    db: WatchedDb
    store: MemoryStore
    clock: WallClock
    backends: Mapping[str, Backend]
    faults: FaultRates
    trace: Trace
    scratch: Path
    receiver: WebhookReceiver | None


@dataclass
class SimulatedServer:
    process: SimulatedProcess
    control: PacedControl


class Servers:
    """`count` servers share the work. A single one keeps its name over restarts, like an embedded server."""

    def __init__(self, shared_world: SharedWorld, rng: RandomStream, count: int, on_commit: Callable[[], None]) -> None:
        self._world = shared_world
        self._rng = rng
        self._count = count
        self._on_commit = on_commit
        self._supervisors = TaskGroup("keepers")
        self._started = 0
        self.running: list[SimulatedServer] = []

    def start(self) -> None:
        for n in range(self._count):
            self._supervisors.start(self._keep(n))

    def stop(self) -> None:
        """End all servers, frozen ones too, and what waits for them."""
        self._supervisors.die()
        for server in self.running:
            server.process.die()
            self._resume(server.process)

    def answer(self, request: Callable[[Agents], Awaitable[T]]) -> asyncio.Task[T] | None:
        server = self.any()
        return None if server is None else server.process.start(call_with(request, server.control.agents))

    def any(self) -> SimulatedServer | None:
        """Return a random server that takes requests, or None. A frozen one does too, if there are several."""
        return self._choose(self._ready() if self._count > 1 else self._awake())

    def _ready(self) -> list[SimulatedServer]:
        return [server for server in self.running if server.process.alive and server.control.ready()]

    def _awake(self) -> list[SimulatedServer]:
        return [server for server in self._ready() if not server.process.frozen]

    def _choose(self, servers: list[SimulatedServer]) -> SimulatedServer | None:
        return self._rng.choose(servers) if servers else None

    def on_laptop(self) -> list[TaskGroup]:
        """Return what freezes when the laptop sleeps: an embedded server and its supervisor, or nothing."""
        return [self._supervisors, *(server.process for server in self.running)] if self._count == 1 else []

    def crash_one(self, where: str) -> None:
        server = self._choose(self._awake())
        if server is not None:
            server.process.crash(where)

    def stop_one(self) -> None:
        """Stop a server gracefully; it is restarted."""
        server = self._choose(self._awake())
        if server is not None:
            server.process.start(self._leave(server))

    def halt_one(self, seconds: float) -> None:
        """Freeze one of several servers soon, wherever it is; it continues from there after `seconds`."""
        server = self._choose(self._awake()) if self._count > 1 else None
        if server is not None:
            server.process.halt = self._rng.integer(0, MAX_HALT)
            server.process.halts_at = self._rng.choose(HALTS_AT)
            server.process.on_halt = lambda where: self._halt(server.process, where, seconds)

    def _halt(self, process: SimulatedProcess, where: str, seconds: float) -> None:
        self._world.trace(process.name, f"stands still at {where} for {seconds:.0f} s")
        virtual_loop().freeze([process])
        virtual_loop().call_later(seconds, self._resume, process, context=Context())

    def _resume(self, process: SimulatedProcess) -> None:
        if process.frozen:
            self._world.trace(process.name, "goes on")
            virtual_loop().thaw([process])

    async def _leave(self, server: SimulatedServer) -> None:
        self._world.trace(server.process.name, "is stopped")
        try:
            await server.control.stop()
        finally:
            server.process.die()

    def stop_faults(self) -> None:
        """Begin the calm phase: no server dies or freezes any more, and frozen ones continue."""
        for server in self.running:
            server.process.fuse = server.process.halt = None
            self._resume(server.process)

    async def _keep(self, n: int) -> None:
        while True:
            server = self._make(n)
            self.running.append(server)
            await self._run(server)
            self.running.remove(server)
            calm = self._world.faults.calm
            await asyncio.sleep(1.0 if calm else self._rng.uniform(0.5, MAX_DOWNTIME))

    async def _run(self, server: SimulatedServer) -> None:
        process = server.process
        try:
            await asyncio.wait({process.start(server.control.start())})
            self._world.trace(process.name, "is up" if server.control.ready() else "did not start")
        except CrucibleError:
            pass
        if not server.control.ready():
            process.die()
        await process.ended.wait()

    def _make(self, n: int) -> SimulatedServer:
        shared_world = self._world
        self._started += 1
        name = "embedded" if self._count == 1 else f"server-{n}-{self._started}"
        fuse = None if shared_world.faults.calm else int(self._rng.waiting_time(MEAN_FUSE))
        process = SimulatedProcess(name, fuse, lambda what: shared_world.trace(name, what))
        ports = Ports(
            clock=shared_world.clock,
            ids=RisingIds(shared_world.clock, self._rng),
            random=SeededRandom(self._rng),
            db=ProcessDb(shared_world.db, process, shared_world.faults, self._on_commit),
            store=shared_world.store,
            calls=DelayedCalls(process, shared_world.faults, self._rng),
            wakeups=OrderedWakeups(),
            worker=name,
        )
        shared, receiver = self._count > 1, shared_world.receiver
        deployment = Deployment(
            DEPLOYMENT,
            KEY,
            "http://agents",
            shared_world.scratch,
            1000,
            shared=shared,
            terms=TERMS,
            post=receiver,
            most_nodes=MOST_NODES,
        )
        return SimulatedServer(process, PacedControl(ports, shared_world.backends, deployment))


async def call_with(request: Callable[[Target], Awaitable[T]], target: Target) -> T:
    """Turn a request's awaitable into a coroutine, which a task needs."""
    return await request(target)
