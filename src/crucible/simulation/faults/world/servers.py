"""Servers: processes of the control plane that die and are started again on the same database."""

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
from crucible.control.runtime.background import BackgroundTasks
from crucible.control.runtime.loops import Loop
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment
from crucible.core.errors import CrucibleError
from crucible.core.ids import Prefix, make_id
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
from crucible.simulation.faults.world.process import Process
from crucible.simulation.faults.world.store import MemoryStore
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.simulation.faults.world.webhook_receiver import WebhookReceiver

T = TypeVar("T")
Face = TypeVar("Face")

KEY = b"the simulated deployment's key"
DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
ALONE_DUTIES = 120.0
"""A process that is alone renews its duties for nobody."""
TERMS = LeaseTerms(lease_seconds=400.0, longest_seconds=2700.0)
FUSE = 2500.0
HALTS_AT = ("", "answer of cloud", "answer of cloud")
"""Where one that stands still does so: anywhere, or more often with an answer in hand that grows old."""
LONGEST_DOWN = 45.0
LONGEST_WALK = 80
"""How much may happen at most before one that is to stand still does."""
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
"""Seconds between rounds that nothing has woken. Longer than a real process's, for the sake of the processor; within
what the rounds rely on: a sweep every 20 seconds, a duty renewed within 20.
"""


class PacedTasks(BackgroundTasks):
    def _make_loops(self) -> list[Loop]:
        alone = not self._services.deployment.shared
        return [Loop(loop.name, loop.topic, _paced(loop, alone)) for loop in super()._make_loops()]


def _paced(loop: Loop, alone: bool) -> Callable[[], Awaitable[float]]:
    idle = ALONE_DUTIES if alone and loop.name == "duties" else IDLE.get(loop.name, 0.0)

    async def round() -> float:
        wait = await loop.round()
        return wait if wait < 1.0 else max(wait, idle)

    return round


class PacedControl(ControlPlane):
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        super().__init__(ports, backends, deployment)
        self._rounds = PacedTasks(self._services)


@dataclass(frozen=True)
class SharedWorld:
    """What outlives every server."""

    db: WatchedDb
    store: MemoryStore
    clock: WallClock
    backends: Mapping[str, Backend]
    faults: FaultRates
    trace: Trace
    scratch: Path
    receiver: WebhookReceiver | None


@dataclass
class Server:
    process: Process
    control: ControlPlane


class Servers:
    """`count` of them share the work. One alone keeps its name over restarts, as an embedded one does."""

    def __init__(self, estate: SharedWorld, dice: RandomStream, count: int, committed: Callable[[], None]) -> None:
        self._world = estate
        self._dice = dice
        self._count = count
        self._committed = committed
        self._supervisors = TaskGroup("keepers")
        self._started = 0
        self.running: list[Server] = []

    def start(self) -> None:
        for n in range(self._count):
            self._supervisors.start(self._keep(n))

    def stop(self) -> None:
        """What waited for one that stands still ends with it."""
        self._supervisors.die()
        for server in self.running:
            server.process.die()
            self._go_on(server.process)

    def answer(self, request: Callable[[Agents], Awaitable[T]]) -> asyncio.Task[T] | None:
        server = self.any()
        return None if server is None else server.process.start(call_with(request, server.control.agents))

    def any(self) -> Server | None:
        """One that takes requests, if there is one. Of several, one that stands still takes them too."""
        return self._one(self._ready() if self._count > 1 else self._awake())

    def _ready(self) -> list[Server]:
        return [server for server in self.running if server.process.alive and server.control.ready()]

    def _awake(self) -> list[Server]:
        return [server for server in self._ready() if not server.process.frozen]

    def _one(self, servers: list[Server]) -> Server | None:
        return self._dice.choose(servers) if servers else None

    def on_laptop(self) -> list[TaskGroup]:
        """What of it sleeps when the laptop does: an embedded server, and whoever starts it again."""
        return [self._supervisors, *(server.process for server in self.running)] if self._count == 1 else []

    def crash_one(self, where: str) -> None:
        server = self._one(self._awake())
        if server is not None:
            server.process.crash(where)

    def stop_one(self) -> None:
        """Somebody stops one properly; it is started again."""
        server = self._one(self._awake())
        if server is not None:
            server.process.start(self._leave(server))

    def halt_one(self, seconds: float) -> None:
        """Of several, one soon stands still wherever it is, and goes on from there so much later."""
        server = self._one(self._awake()) if self._count > 1 else None
        if server is not None:
            server.process.halt = self._dice.integer(0, LONGEST_WALK)
            server.process.halts_at = self._dice.choose(HALTS_AT)
            server.process.halted = lambda where: self._halt(server.process, where, seconds)

    def _halt(self, process: Process, where: str, seconds: float) -> None:
        self._world.trace(process.name, f"stands still at {where} for {seconds:.0f} s")
        virtual_loop().freeze([process])
        virtual_loop().call_later(seconds, self._go_on, process, context=Context())

    def _go_on(self, process: Process) -> None:
        if process.frozen:
            self._world.trace(process.name, "goes on")
            virtual_loop().thaw([process])

    async def _leave(self, server: Server) -> None:
        self._world.trace(server.process.name, "is stopped")
        try:
            await server.control.stop()
        finally:
            server.process.die()

    def stop_faults(self) -> None:
        """From now on nobody dies or stands still; who does goes on."""
        for server in self.running:
            server.process.fuse = server.process.halt = None
            self._go_on(server.process)

    async def _keep(self, n: int) -> None:
        while True:
            server = self._make(n)
            self.running.append(server)
            await self._live(server)
            self.running.remove(server)
            calm = self._world.faults.calm
            await asyncio.sleep(1.0 if calm else self._dice.uniform(0.5, LONGEST_DOWN))

    async def _live(self, server: Server) -> None:
        process = server.process
        try:
            await asyncio.wait({process.start(server.control.start())})
            self._world.trace(process.name, "is up" if server.control.ready() else "did not start")
        except CrucibleError:
            pass
        if not server.control.ready():
            process.die()
        await process.ended.wait()

    def _make(self, n: int) -> Server:
        estate = self._world
        self._started += 1
        name = "embedded" if self._count == 1 else f"server-{n}-{self._started}"
        fuse = None if estate.faults.calm else int(self._dice.waiting_time(FUSE))
        process = Process(name, fuse, lambda what: estate.trace(name, what))
        ports = Ports(
            clock=estate.clock,
            ids=RisingIds(estate.clock, self._dice),
            random=SeededRandom(self._dice),
            db=ProcessDb(estate.db, process, estate.faults, self._committed),
            store=estate.store,
            calls=DelayedCalls(process, estate.faults, self._dice),
            wakeups=OrderedWakeups(),
            worker=name,
        )
        shared, post = self._count > 1, estate.receiver
        deployment = Deployment(
            DEPLOYMENT, KEY, "http://agents", estate.scratch, 1000, shared=shared, terms=TERMS, post=post
        )
        return Server(process, PacedControl(ports, estate.backends, deployment))


async def call_with(request: Callable[[Face], Awaitable[T]], face: Face) -> T:
    return await request(face)
