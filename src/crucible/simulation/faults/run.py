"""One run: a world made from a seed, a chaos, then a calm in which everything must come to its end."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Connection, delete, text
from stamina.instrumentation import set_on_retry_hooks

from crucible.control.db import schema as t
from crucible.control.db.migrate import create_schema
from crucible.control.reconcile import crashpoints
from crucible.control.secrets import KEYS_FILE
from crucible.core.errors import CrucibleError
from crucible.simulation.faults.checks.checkers import Checkers
from crucible.simulation.faults.checks.endings import TerminationCheck
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.notifications import NotificationCheck
from crucible.simulation.faults.checks.secrets import SecretsCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.storms import Storms
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import Deadlock, VirtualLoop
from crucible.simulation.faults.world.administrator import Administrator
from crucible.simulation.faults.world.api import ApiClient
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.elastic_backend import ElasticBackend
from crucible.simulation.faults.world.local_backend import SimulatedLocalBackend
from crucible.simulation.faults.world.machine import MachineEnvironment
from crucible.simulation.faults.world.network import Network, NoAnswer, NotWanted, RequestRefused
from crucible.simulation.faults.world.people import People
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.process import Crash, arm_all
from crucible.simulation.faults.world.servers import Servers, SharedWorld
from crucible.simulation.faults.world.store import MemoryStore
from crucible.simulation.faults.world.webhook_receiver import WebhookReceiver

JOBS = 5
CHAOS_SECONDS = 3000.0
CALM_SECONDS = 6 * 3600.0
LOOK_SECONDS = 30.0
RECEIVERS = 0.4
"""The part of the seeds in which somebody is told how jobs end; to look for news for others is dear."""
EXPECTED = (Crash, CrucibleError, NoAnswer, RequestRefused, NotWanted, InvariantBroken)
"""What a task may end in."""


@dataclass(frozen=True)
class Outcome:
    """`broken` is empty when every invariant held."""

    seed: int
    broken: str
    virtual_seconds: float
    digest: str
    trace: Trace

    @property
    def ok(self) -> bool:
        return not self.broken


def run(seed: int) -> Outcome:
    """The same seed gives the same trace, whatever ran before."""
    loop = VirtualLoop()  # type: ignore[abstract]  # what it leaves out would wait for a real world
    with _database() as db, tempfile.TemporaryDirectory() as scratch:
        world = World(seed, loop, db, Path(scratch))
        with _instrumented(world):
            broken = _run_world(loop, world)
    return Outcome(seed, broken, loop.time(), world.trace.digest, world.trace)


def _run_world(loop: VirtualLoop, world: World) -> str:
    """What broke, or nothing. An error of the simulation itself is a finding too: it has a seed, and others go on."""
    loop.failed = world.on_task_error
    try:
        return loop.run_until_complete(world.run())
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        world.report(repr(error))
        return repr(error)


class World:
    def __init__(self, seed: int, loop: VirtualLoop, db: WatchedDb, scratch: Path) -> None:
        self._seed, self._loop, self._db = seed, loop, db
        self.trace = Trace(loop.time)
        self._broken: list[str] = []
        self._calm_since: float | None = None
        self._clock = WallClock(loop)
        self._faults = FaultRates(self._dice("weather"), loop.time)
        self._truth = GroundTruth(self.report)
        store = MemoryStore(self._faults)
        backends: dict[str, Any] = {}
        notices = NotificationCheck(db, self._truth)
        receiver = self._receiver(notices)
        estate = SharedWorld(db, store, self._clock, backends, self._faults, self.trace, scratch, receiver)
        dice = self._dice("servers")
        self._servers = Servers(estate, dice, 2 if dice.chance(0.25) else 1, self._committed)
        network = Network(self._servers, self._faults, self._dice("network"))
        ground = MachineEnvironment(network, self._truth, self.trace, self._dice("machines"))
        self._cloud = Cloud(loop, ground, self._faults, self._dice("cloud"))
        self._laptop = SimulatedLocalBackend(ground, self._faults)
        backends["cloud"] = ElasticBackend(self._cloud, self._faults, self._dice("api"))
        backends["local"] = self._laptop
        door = ApiClient(self._servers, self._faults)
        self._people = People(door, self._clock, self._faults, self._truth, self.trace, self._dice("people"))
        self._storms = Storms(
            self._faults,
            self._cloud,
            self._laptop,
            self._servers,
            self._people,
            self._clock,
            self.trace,
            self._dice("storms"),
        )
        safe = SecretsCheck(db, scratch / KEYS_FILE)
        self._checkers = Checkers(db, self._truth, self._cloud, store, loop.time, self._clock, safe, notices)
        self._steward = Administrator(door, receiver, notices, safe, self.trace, self._dice("steward"))
        endings = TerminationCheck(db, self._truth, self._clock)
        self._cloud.on_terminate, self._laptop.on_terminate = endings.check_instance, endings.check_programs

    def _dice(self, name: str) -> RandomStream:
        return RandomStream(self._seed, name)

    def _receiver(self, notices: NotificationCheck) -> WebhookReceiver | None:
        """Some projects have one."""
        dice = self._dice("receiver")
        return WebhookReceiver(self._faults, dice, notices) if dice.chance(RECEIVERS) else None

    def report(self, what: str) -> None:
        """An invariant does not hold: the run ends soon."""
        if not self._broken:
            self.trace("BROKEN", what)
        self._broken.append(what)

    def on_task_error(self, error: BaseException) -> None:
        """A task ended so. What nobody foresaw is a finding, though another task may make up for it."""
        if not isinstance(error, EXPECTED):
            self.report(f"nobody expected {error!r}")

    async def run(self) -> str:
        """What broke, or nothing."""
        self._servers.start()
        self._people.start(JOBS)
        self._steward.start(self._people.crew)
        self._storms.start()
        try:
            await self._chaos()
            await self._calm()
        except InvariantBroken as broken:
            self.report(str(broken))
        finally:
            for part in (self._people, self._servers):
                part.stop()
            self._storms.end()
            await asyncio.sleep(0)  # so that what was just ended hears of it
        return self._broken[0] if self._broken else ""

    async def _chaos(self) -> None:
        while self._loop.time() < CHAOS_SECONDS + self._storms.slept and not self._broken:
            await asyncio.sleep(LOOK_SECONDS)
            self._checkers.check(None)

    async def _calm(self) -> None:
        self.trace("weather", "calm")
        self._calm_since = self._loop.time()
        self._storms.end()
        self._faults.end()
        self._servers.stop_faults()
        while not self._broken:
            await asyncio.sleep(LOOK_SECONDS)
            self._checkers.check(self._calm_since)
            left = f"{self._people.waiting} wait" if self._people.waiting else self._checkers.unfinished()
            if not left:
                self._checkers.check_end()
                await self._people.prune()
                return self._checkers.check_pruned()
            if self._loop.time() > self._calm_since + CALM_SECONDS:
                raise InvariantBroken(f"stuck: {left}")

    def _committed(self) -> None:
        try:
            self._checkers.check_commit()
        except InvariantBroken as broken:
            self.report(str(broken))

    def on_log(self, logger: object, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """What the control plane logs. A failure that nobody expected is a finding."""
        self.trace("log", f"{event.get('event')} {event.get('error', event.get('why', ''))}")
        told = event.get("exc_info")
        error = told if isinstance(told, BaseException) else sys.exc_info()[1]
        if told and not isinstance(error, Crash | CrucibleError):
            self.report(f"{event['event']}: {error!r}")
        raise structlog.DropEvent


_idle: list[WatchedDb] = []
"""Databases of earlier runs, emptied: one that has compiled its statements answers ten times sooner."""


@contextmanager
def _database() -> Iterator[WatchedDb]:
    db = _idle.pop() if _idle else None
    if db is None:
        db = WatchedDb()
        _run_sync(db.write(create_schema))
    try:
        yield db
    finally:
        _run_sync(db.write(_wipe))
        _idle.append(db)


def _wipe(conn: Connection) -> None:
    for table in reversed(t.metadata.sorted_tables):
        conn.execute(delete(table))
    conn.execute(text("DELETE FROM sqlite_sequence"))


def _run_sync(work: Any) -> None:
    """Runs what never suspends."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise Deadlock("it suspended")


@contextmanager
def _instrumented(world: World) -> Iterator[None]:
    """While it runs, every crash point is armed and the control plane's log is read."""
    before = structlog.get_config()
    structlog.configure(processors=[world.on_log], cache_logger_on_first_use=False)
    set_on_retry_hooks(())
    arm_all()
    try:
        yield
    finally:
        crashpoints.disarm()
        set_on_retry_hooks(None)
        structlog.configure(**before)
