"""Run one seed: a chaos phase full of faults, then a calm phase in which everything must come to its end."""

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
from crucible.simulation.faults.checks.gangs import GangCheck
from crucible.simulation.faults.checks.notifications import NotificationCheck
from crucible.simulation.faults.checks.provider_queue import ProviderQueueCheck
from crucible.simulation.faults.checks.secrets import SecretsCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.storms import OUTAGE_SHARE, Storms
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import Deadlock, VirtualLoop
from crucible.simulation.faults.world.administrator import Administrator
from crucible.simulation.faults.world.api import ApiClient
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.elastic_backend import ElasticBackend
from crucible.simulation.faults.world.layout import make_layout
from crucible.simulation.faults.world.machine import MachineEnvironment
from crucible.simulation.faults.world.network import Network, NoAnswer, NotWanted, RequestRefused
from crucible.simulation.faults.world.people import SimulatedUsers
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.process import Crash, arm_all
from crucible.simulation.faults.world.servers import Servers, SharedWorld
from crucible.simulation.faults.world.store import MemoryStore
from crucible.simulation.faults.world.webhook_receiver import WebhookReceiver

JOBS = 5
CHAOS_SECONDS = 3000.0
CALM_SECONDS = 6 * 3600.0
CHECK_SECONDS = 30.0
RECEIVER_SHARE = 0.4
"""Share of the seeds that have a webhook receiver; sending notifications makes a run slow."""
EXPECTED = (Crash, CrucibleError, NoAnswer, RequestRefused, NotWanted, InvariantBroken)
"""Errors that a task may end with."""


@dataclass(frozen=True)
class RunOutcome:
    """The result of a seed. `broken` is empty if every invariant held."""

    seed: int
    broken: str
    virtual_seconds: float
    digest: str
    trace: Trace

    @property
    def ok(self) -> bool:
        return not self.broken


def run(seed: int) -> RunOutcome:
    """Run a seed. The same seed gives the same trace, whatever ran before in this process."""
    loop = VirtualLoop()  # type: ignore[abstract]  # it leaves out sockets, threads and signals
    with _database() as db, tempfile.TemporaryDirectory() as scratch:
        world = SimulatedWorld(seed, loop, db, Path(scratch))
        with _instrumented(world):
            broken = _run_world(loop, world)
    return RunOutcome(seed, broken, loop.time(), world.trace.digest, world.trace)


def _run_world(loop: VirtualLoop, world: SimulatedWorld) -> str:
    """Return what broke, or "".

    An error of the simulation itself is a finding like any other, so that it is reported with its seed.
    """
    loop.failed = world.on_task_error
    try:
        return loop.run_until_complete(world.run())
    except Exception as error:  # noqa: BLE001  any error is a finding
        world.report(repr(error))
        return repr(error)


class SimulatedWorld:
    """Everything that one seed simulates: servers, cloud, laptop, network, users, faults and checkers."""

    def __init__(self, seed: int, loop: VirtualLoop, db: WatchedDb, scratch: Path) -> None:
        self._seed, self._loop, self._db = seed, loop, db
        self.trace = Trace(loop.time)
        self._broken: list[str] = []
        self._calm_since: float | None = None
        self._clock = WallClock(loop)
        self._faults = FaultRates(self._rng("weather"), loop.time)
        self._truth = GroundTruth(self.report)
        store = MemoryStore(self._faults)
        backends: dict[str, Any] = {}
        notifications = NotificationCheck(db, self._truth)
        receiver = self._receiver(notifications)
        shared_world = SharedWorld(db, store, self._clock, backends, self._faults, self.trace, scratch, receiver)
        rng = self._rng("servers")
        self._servers = Servers(shared_world, rng, 2 if rng.chance(0.25) else 1, self._on_commit)
        network = Network(self._servers, self._faults, self._rng("network"))
        environment = MachineEnvironment(network, self._truth, self.trace, self._rng("machines"))
        self._cloud = Cloud(loop, environment, self._faults, self._rng("cloud"))
        layout = make_layout(loop, environment, self._faults, self._rng("layout"))
        self._truth.cpus = {computer.node.id: computer.size.cpus for computer in layout.computers}
        backends["cloud"] = ElasticBackend(self._cloud, self._faults, self._rng("api"))
        backends.update({backend.name: backend for backend in layout.backends})
        if layout.cluster_backend is not None:
            backends["cluster"] = layout.cluster_backend
        api = ApiClient(self._servers, self._faults)
        self._people = SimulatedUsers(api, self._clock, self._faults, self._truth, self.trace, self._rng("people"))
        self._people.choose_among(layout.extra_names, self._rng("choices"))
        has_gangs = self._people.ask_for_gangs(self._rng("gangs"))
        self._storms = Storms(
            self._faults,
            self._cloud,
            layout,
            self._servers,
            self._people,
            self._clock,
            self.trace,
            self._rng("storms"),
        )
        secrets = SecretsCheck(db, scratch / KEYS_FILE)
        self._checkers = Checkers(db, self._truth, self._cloud, store, loop.time, self._clock, secrets, notifications)
        if has_gangs:
            self._checkers.gangs = GangCheck(db, self._clock)
        self._administrator = Administrator(api, receiver, notifications, secrets, self.trace, self._rng("steward"))
        endings = TerminationCheck(db, self._truth, self._clock)
        self._cloud.on_terminate = endings.check_instance
        for backend in layout.backends:
            backend.on_terminate = endings.check_machine
        if layout.cluster is not None and layout.cluster_backend is not None:
            layout.cluster.on_terminate = endings.check_machine
            limit = layout.cluster_backend.limit
            self._checkers.queue = ProviderQueueCheck(db, self._truth, layout.cluster, self._clock, limit)

    def _rng(self, name: str) -> RandomStream:
        return RandomStream(self._seed, name)

    def _receiver(self, notifications: NotificationCheck) -> WebhookReceiver | None:
        """Return the webhook receiver, which only a share of the seeds has."""
        rng = self._rng("receiver")
        return WebhookReceiver(self._faults, rng, notifications) if rng.chance(RECEIVER_SHARE) else None

    def report(self, what: str) -> None:
        """Record a broken invariant: the run ends at the next check."""
        if not self._broken:
            self.trace("BROKEN", what)
        self._broken.append(what)

    def on_task_error(self, error: BaseException) -> None:
        """Report an error that a task ended with, unless it is expected.

        It is a finding even if a retry in another task would hide it.
        """
        if not isinstance(error, EXPECTED):
            self.report(f"nobody expected {error!r}")

    async def run(self) -> str:
        """Run both phases and return what broke first, or ""."""
        self._servers.start()
        self._people.start(JOBS)
        self._administrator.start(self._people.tasks)
        self._storms.start()
        outages = self._rng("outages")
        if outages.chance(OUTAGE_SHARE):
            self._storms.plan_outage(outages)
            self._people.stop_launches(self._rng("operator"))
        try:
            await self._chaos()
            await self._calm()
        except InvariantBroken as broken:
            self.report(str(broken))
        finally:
            for part in (self._people, self._servers):
                part.stop()
            self._storms.end()
            await asyncio.sleep(0)  # lets the cancelled tasks end
        return self._broken[0] if self._broken else ""

    async def _chaos(self) -> None:
        while self._loop.time() < CHAOS_SECONDS + self._storms.slept and not self._broken:
            await asyncio.sleep(CHECK_SECONDS)
            self._checkers.check(None)

    async def _calm(self) -> None:
        self.trace("weather", "calm")
        self._calm_since = self._loop.time()
        self._storms.end()
        self._faults.end()
        self._servers.stop_faults()
        while not self._broken:
            await asyncio.sleep(CHECK_SECONDS)
            self._checkers.check(self._calm_since)
            left = f"{self._people.waiting} wait" if self._people.waiting else self._checkers.unfinished()
            if not left:
                self._checkers.check_end()
                await self._people.prune()
                return self._checkers.check_pruned()
            if self._loop.time() > self._calm_since + CALM_SECONDS:
                raise InvariantBroken(f"stuck: {left}")

    def _on_commit(self) -> None:
        try:
            self._checkers.check_commit()
        except InvariantBroken as broken:
            self.report(str(broken))

    def on_log(self, logger: object, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Add a log line of the control plane to the trace. An unexpected error in it is a finding."""
        self.trace("log", f"{event.get('event')} {event.get('error', event.get('why', ''))}")
        exc_info = event.get("exc_info")
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        if exc_info and not isinstance(error, Crash | CrucibleError):
            self.report(f"{event['event']}: {error!r}")
        raise structlog.DropEvent


_idle: list[WatchedDb] = []
"""Emptied databases of earlier runs: one whose statements are compiled is ten times faster."""


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
    """Run a coroutine that never suspends, without an event loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise Deadlock("it suspended")


@contextmanager
def _instrumented(world: SimulatedWorld) -> Iterator[None]:
    """Arm every crash point and send the control plane's log to the trace, for the duration of the context."""
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
