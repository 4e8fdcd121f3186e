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
from crucible.control.db.migrate import create
from crucible.control.reconcile import crashpoints
from crucible.control.secrets import KEYS_FILE
from crucible.core.errors import CrucibleError
from crucible.simulation.faults.checks.checkers import Checkers
from crucible.simulation.faults.checks.endings import Endings
from crucible.simulation.faults.checks.event_order import Broken
from crucible.simulation.faults.checks.notifications import Notices
from crucible.simulation.faults.checks.secrets import Safe
from crucible.simulation.faults.fault_rates import Dice, Weather
from crucible.simulation.faults.ground_truth import Truth
from crucible.simulation.faults.storms import Storms
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import Deadlock, VirtualLoop
from crucible.simulation.faults.world.administrator import Steward
from crucible.simulation.faults.world.api import Door
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.elastic_backend import ElasticBackend
from crucible.simulation.faults.world.local_backend import Laptop
from crucible.simulation.faults.world.machine import Ground
from crucible.simulation.faults.world.network import Gone, Lost, Network, Refused
from crucible.simulation.faults.world.people import People
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.process import Crash, arm_all
from crucible.simulation.faults.world.servers import Estate, Servers
from crucible.simulation.faults.world.store import MemoryStore
from crucible.simulation.faults.world.webhook_receiver import Receiver

JOBS = 5
CHAOS_SECONDS = 3000.0
CALM_SECONDS = 6 * 3600.0
LOOK_SECONDS = 30.0
RECEIVERS = 0.4
"""The part of the seeds in which somebody is told how jobs end; to look for news for others is dear."""
EXPECTED = (Crash, CrucibleError, Lost, Refused, Gone, Broken)
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
        with _listening(world):
            broken = _survived(loop, world)
    return Outcome(seed, broken, loop.time(), world.trace.digest, world.trace)


def _survived(loop: VirtualLoop, world: World) -> str:
    """What broke, or nothing. An error of the simulation itself is a finding too: it has a seed, and others go on."""
    loop.failed = world.failed
    try:
        return loop.run_until_complete(world.run())
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        world.break_(repr(error))
        return repr(error)


class World:
    def __init__(self, seed: int, loop: VirtualLoop, db: WatchedDb, scratch: Path) -> None:
        self._seed, self._loop, self._db = seed, loop, db
        self.trace = Trace(loop.time)
        self._broken: list[str] = []
        self._calm_since: float | None = None
        self._clock = WallClock(loop)
        self._weather = Weather(self._dice("weather"), loop.time)
        self._truth = Truth(self.break_)
        store = MemoryStore(self._weather)
        backends: dict[str, Any] = {}
        notices = Notices(db, self._truth)
        receiver = self._receiver(notices)
        estate = Estate(db, store, self._clock, backends, self._weather, self.trace, scratch, receiver)
        dice = self._dice("servers")
        self._servers = Servers(estate, dice, 2 if dice.chance(0.25) else 1, self._committed)
        network = Network(self._servers, self._weather, self._dice("network"))
        ground = Ground(network, self._truth, self.trace, self._dice("machines"))
        self._cloud = Cloud(loop, ground, self._weather, self._dice("cloud"))
        self._laptop = Laptop(ground, self._weather)
        backends["cloud"] = ElasticBackend(self._cloud, self._weather, self._dice("api"))
        backends["local"] = self._laptop
        door = Door(self._servers, self._weather)
        self._people = People(door, self._clock, self._weather, self._truth, self.trace, self._dice("people"))
        self._storms = Storms(
            self._weather,
            self._cloud,
            self._laptop,
            self._servers,
            self._people,
            self._clock,
            self.trace,
            self._dice("storms"),
        )
        safe = Safe(db, scratch / KEYS_FILE)
        self._checkers = Checkers(db, self._truth, self._cloud, store, loop.time, self._clock, safe, notices)
        self._steward = Steward(door, receiver, notices, safe, self.trace, self._dice("steward"))
        endings = Endings(db, self._truth, self._clock)
        self._cloud.ending, self._laptop.ending = endings.of_instance, endings.of_programs

    def _dice(self, name: str) -> Dice:
        return Dice(self._seed, name)

    def _receiver(self, notices: Notices) -> Receiver | None:
        """Some projects have one."""
        dice = self._dice("receiver")
        return Receiver(self._weather, dice, notices) if dice.chance(RECEIVERS) else None

    def break_(self, what: str) -> None:
        """An invariant does not hold: the run ends soon."""
        if not self._broken:
            self.trace("BROKEN", what)
        self._broken.append(what)

    def failed(self, error: BaseException) -> None:
        """A task ended so. What nobody foresaw is a finding, though another task may make up for it."""
        if not isinstance(error, EXPECTED):
            self.break_(f"nobody expected {error!r}")

    async def run(self) -> str:
        """What broke, or nothing."""
        self._servers.start()
        self._people.start(JOBS)
        self._steward.start(self._people.crew)
        self._storms.start()
        try:
            await self._chaos()
            await self._calm()
        except Broken as broken:
            self.break_(str(broken))
        finally:
            for part in (self._people, self._servers):
                part.stop()
            self._storms.end()
            await asyncio.sleep(0)  # so that what was just ended hears of it
        return self._broken[0] if self._broken else ""

    async def _chaos(self) -> None:
        while self._loop.time() < CHAOS_SECONDS + self._storms.slept and not self._broken:
            await asyncio.sleep(LOOK_SECONDS)
            self._checkers.look(None)

    async def _calm(self) -> None:
        self.trace("weather", "calm")
        self._calm_since = self._loop.time()
        self._storms.end()
        self._weather.end()
        self._servers.spare()
        while not self._broken:
            await asyncio.sleep(LOOK_SECONDS)
            self._checkers.look(self._calm_since)
            left = f"{self._people.waiting} wait" if self._people.waiting else self._checkers.unfinished()
            if not left:
                self._checkers.finish()
                await self._people.prune()
                return self._checkers.pruned()
            if self._loop.time() > self._calm_since + CALM_SECONDS:
                raise Broken(f"stuck: {left}")

    def _committed(self) -> None:
        try:
            self._checkers.commit()
        except Broken as broken:
            self.break_(str(broken))

    def heard(self, logger: object, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """What the control plane logs. A failure that nobody expected is a finding."""
        self.trace("log", f"{event.get('event')} {event.get('error', event.get('why', ''))}")
        told = event.get("exc_info")
        error = told if isinstance(told, BaseException) else sys.exc_info()[1]
        if told and not isinstance(error, Crash | CrucibleError):
            self.break_(f"{event['event']}: {error!r}")
        raise structlog.DropEvent


_idle: list[WatchedDb] = []
"""Databases of earlier runs, emptied: one that has compiled its statements answers ten times sooner."""


@contextmanager
def _database() -> Iterator[WatchedDb]:
    db = _idle.pop() if _idle else None
    if db is None:
        db = WatchedDb()
        _now(db.write(create))
    try:
        yield db
    finally:
        _now(db.write(_wipe))
        _idle.append(db)


def _wipe(conn: Connection) -> None:
    for table in reversed(t.metadata.sorted_tables):
        conn.execute(delete(table))
    conn.execute(text("DELETE FROM sqlite_sequence"))


def _now(work: Any) -> None:
    """Runs what never suspends."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise Deadlock("it suspended")


@contextmanager
def _listening(world: World) -> Iterator[None]:
    """While it runs, every crash point is armed and the control plane's log is read."""
    before = structlog.get_config()
    structlog.configure(processors=[world.heard], cache_logger_on_first_use=False)
    set_on_retry_hooks(())
    arm_all()
    try:
        yield
    finally:
        crashpoints.disarm()
        set_on_retry_hooks(None)
        structlog.configure(**before)
