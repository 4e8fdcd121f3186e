"""One transaction of decisions and rows, and the wake-ups to send once it is committed.

    await writer.write(lambda unit: unit.advance(world, fact))

The function runs inside `db.write`, so it may be run again. It makes all changes through the unit. Wake-ups are sent
only after the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection
from stamina import AsyncRetryingCaller

from crucible.control.db.clock import database_now
from crucible.control.reconcile import repository
from crucible.control.runtime.ports import Ports
from crucible.control.telemetry.feed import Feed, Hint
from crucible.core.hooks import HookEvent
from crucible.core.lifecycle import Fact, JobState, Machine, Step, World, advance, advance_machine
from crucible.core.lifecycle.facts import MachineFact, Waits

T = TypeVar("T")

MAX_ATTEMPTS = 5
HOOKS = "hooks"
"""The wake-up topic of the notifier."""
SCHEDULER = "scheduler"
"""The wake-up topic of the scheduler."""
_HOOKED = frozenset(event.value for event in HookEvent)
# Without waits or jitter: the simulator runs this too, and must stay deterministic.
_retry_when_stale = AsyncRetryingCaller(
    attempts=MAX_ATTEMPTS, timeout=None, wait_initial=0, wait_max=0, wait_jitter=0
).on(repository.Stale)


@dataclass
class Changes:
    """What a unit of work changed, for the wake-ups after its commit."""

    jobs: dict[str, set[Hint]] = field(default_factory=dict)
    machines: set[str] = field(default_factory=set)
    effects: bool = False
    queued: set[str] = field(default_factory=set)
    """Jobs that now wait in the queue and did not before."""
    freed: bool = False
    """Whether slots may be free, or a turn has come, because an attempt, a waiting job or a machine is no more."""
    events: Counter[str] = field(default_factory=Counter)

    def hint(self, job: str, stream: Hint) -> None:
        self.jobs.setdefault(job, set()).add(stream)


class UnitOfWork:
    """The work of one transaction. `now` is the same for all of it."""

    def __init__(self, conn: Connection, now: float) -> None:
        self.conn = conn
        self.now = now
        self.changes = Changes()

    def advance(self, world: World, *facts: Fact) -> World:
        """Apply the facts in order, store what changes, and return the new world."""
        for fact in facts:
            step = advance(world, fact, self.now)
            world = self.save(world, step)
        return world

    def save(self, before: World, step: Step) -> World:
        after = repository.save_step(self.conn, before, step, self.now)
        self._record_changes(step)
        self._record_turns(before, after)
        if step.events or step.world != before:
            self.changes.hint(after.job.id, Hint.EVENT)
        return after

    def create(self, step: Step) -> World:
        world = repository.insert_job(self.conn, step, self.now)
        self.changes.queued.add(world.job.id)
        self._record_changes(step)
        self.changes.hint(world.job.id, Hint.EVENT)
        return world

    def advance_machine(self, machine: Machine, *facts: MachineFact) -> Machine:
        for fact in facts:
            step = advance_machine(machine, fact, self.now)
            machine = repository.save_machine(self.conn, machine, step.machine, step.effects, self.now)
            self.changes.effects |= bool(step.effects)
            self.changes.freed |= not machine.alive
        self.changes.machines.add(machine.id)
        return machine

    def record_wait(self, job: str, why: str) -> None:
        """Record what a queued job waits for; do nothing if the job no longer exists."""
        world = repository.load_world(self.conn, job)
        if world is not None:
            self.advance(world, Waits(why))

    def _record_turns(self, before: World, after: World) -> None:
        """Record what the scheduler needs to know: a job that is placed at once is none of its business."""
        was, waits = (world.job.state is JobState.QUEUED for world in (before, after))
        if waits and not was:
            self.changes.queued.add(after.job.id)
        if was and not waits:
            self.changes.queued.discard(after.job.id)
        left_the_queue = was and not waits and after.live is None
        self.changes.freed |= left_the_queue or (before.live is not None and after.live is None)

    def _record_changes(self, step: Step) -> None:
        self.changes.machines |= step.touched
        self.changes.effects |= bool(step.effects)
        self.changes.events.update(event.type for event in step.events)


class Writer:
    """Runs units of work against the database, and retries those that raise Stale.

    `event_counts` counts the events committed by this process, by type.
    """

    def __init__(self, ports: Ports, feed: Feed) -> None:
        self._ports = ports
        self._feed = feed
        self.event_counts: Counter[str] = Counter()

    async def write(self, fn: Callable[[UnitOfWork], T]) -> T:
        result, changes = await _retry_when_stale(self._ports.db.write, partial(self._run, fn))
        self.announce(changes)
        return result

    def _run(self, fn: Callable[[UnitOfWork], T], conn: Connection) -> tuple[T, Changes]:
        unit = UnitOfWork(conn, database_now(conn, self._ports.clock.now))
        return fn(unit), unit.changes

    def announce(self, changes: Changes) -> None:
        self.event_counts.update(changes.events)
        for job, streams in changes.jobs.items():
            self._feed.publish(job, streams)
        self._wake(f"machine:{machine}" for machine in changes.machines)
        if changes.effects:
            self._wake(["effects"])
        if changes.queued or changes.freed:
            self._wake([SCHEDULER])
        if not _HOOKED.isdisjoint(changes.events):
            self._wake([HOOKS])

    def _wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._ports.wakeups.wake(topic)
