"""Jobs on a database, told the acts of the lifecycle's walk through real units of work.

After each act everything is read back and held against what the pure functions decide: no field, event or effect is
lost, doubled or half written.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from obstore.store import MemoryStore
from sqlalchemy import Connection, Table, insert, select
from tests.control.fakes import CountedIds, EvenRandom, FakeClock, InlineCalls, Killed
from tests.core.lifecycle.acts import Act, Claim, Contact, Pass, Say, See, claim_of
from tests.core.lifecycle.builders import NOW
from tests.core.lifecycle.explore import machines_of
from tests.core.lifecycle.moves import Books

from crucible.control.agents import contacts
from crucible.control.db import schema as t
from crucible.control.db.port import Db
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.control.telemetry.feed import Feed
from crucible.core.lifecycle import (
    DesiredState,
    EffectKind,
    Fact,
    Machine,
    MachineState,
    Step,
    World,
    advance,
    advance_machine,
)
from crucible.core.lifecycle import facts as f
from crucible.storage import ObjectStore

T = TypeVar("T")

TABLES = (t.jobs, t.attempts, t.slots, t.machines, t.events, t.effects, t.price_segments)
PRESENT = (f.HostSeen, f.SeenQueued, f.SeenUp, f.SeenHalted)
"""Whoever says this says that the machine is there."""


@dataclass(frozen=True)
class Records:
    """What was read back: jobs as they are loaded for a decision, all machines, events by job, effects in order."""

    worlds: dict[str, World] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    events: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    effects: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Stored:
    """What is on the database, and what should be."""

    db: Db
    runner: asyncio.Runner
    books: Books = field(default_factory=Books)
    clock: FakeClock = field(default_factory=FakeClock)
    records: Records = field(default_factory=Records)
    said: list[Fact] = field(default_factory=list)
    lives: dict[str, list[f.MachineFact]] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    proven: set[tuple[str, ...]] = field(default_factory=set)
    """Ways from an empty database after which all was read back. The same way leads to the same once more."""

    def __post_init__(self) -> None:
        self.clock.time = NOW
        self._looks = 0
        self.restart()

    def restart(self) -> None:
        """Another process on the same database: it knows what is stored and nothing else."""
        store, ids = ObjectStore(MemoryStore()), CountedIds(self.clock)
        ports = Ports(self.clock, ids, EvenRandom(), self.db, store, InlineCalls(), LocalWakeups(), "w1")
        self.writer = Writer(ports, Feed())

    @property
    def now(self) -> float:
        return self.clock.now()

    def world(self, job: str) -> World:
        return self.records.worlds[job]

    # What happens

    def begin(self, world: World) -> None:
        self._write(lambda unit: unit.create(Step(world)))
        self._expect(worlds={**self.records.worlds, world.job.id: world})

    def act(self, job: str, act: Act) -> None:
        """One act of a walk, with all that must hold after it."""
        self.path.append(act.name)
        match act:
            case Pass(seconds):
                self.clock.move(seconds)
            case Say():
                self.tell(job, act.make(self.world(job), self.now))
            case See(_, facts, last):
                machines = machines_of(self.world(job))
                for machine, fact in itertools.product(machines[-1:] if last else machines, facts):
                    self.show(machine.id, fact)
            case Claim():
                for machine in machines_of(self.world(job)):
                    self.show(machine.id, claim_of(machine))
            case Contact():
                self._contact(job)

    def tell(self, job: str, fact: Fact) -> None:
        """The fact, decided on and stored in a unit of its own."""
        fact = self._arriving(fact)
        before = _with_machine(self.world(job), fact)
        self.said.append(fact)
        self._told(before, fact, self._write(lambda unit: unit.advance(before, fact)))

    def show(self, machine: str, fact: f.MachineFact) -> None:
        """A fact about a machine. Jobs on one that is gone are due; nothing else of them changes."""
        before = self.records.machines[machine]
        step = advance_machine(before, fact, self.now)
        after = self._write(lambda unit: unit.advance_machine(before, fact))
        self.lives.setdefault(machine, []).append(fact)
        self.books.shown(before, fact, step, lambda: tuple(self.path))
        assert replace(after, version=0) == replace(step.machine, version=0)
        went = before.alive and not after.alive
        queued = MachineState.QUEUED in (before.state, after.state)
        wakes = went or (queued and (before.state, before.detail) != (after.state, after.detail))
        assert not went or said_gone(before, self.lives[machine]), f"nobody said that {machine} is gone"
        effects = [(effect.kind.value, effect.machine) for effect in step.effects]
        assert before.wanted or not effects, "what is not wanted is not launched again"
        worlds = {job: _beside(w, after, self.now if wakes else None) for job, w in self.records.worlds.items()}
        self._expect(
            worlds=worlds,
            machines={**self.records.machines, machine: after},
            effects=[*self.records.effects, *effects],
        )

    def _contact(self, job: str) -> None:
        world, live = self.world(job), self.world(job).live
        if live is not None:
            self._run(self.db.write(contacts.ContactBatch(attempts={live.id: self.now}).store))
            seen = world.with_attempt(replace(live, last_seen=self.now))
            self._expect(worlds={**self.records.worlds, job: seen})

    # What may go wrong between

    def die_before_commit(self, job: str, fact: Fact) -> None:
        """The process dies when everything is written and nothing committed: nothing of it is there."""
        fact = self._arriving(fact)
        before, rows = _with_machine(self.world(job), fact), self._rows()

        def decide(unit: UnitOfWork) -> None:
            unit.advance(before, fact)
            raise Killed

        try:
            self._write(decide)
        except Killed:
            self.restart()
        assert self._rows() == rows

    def two_decide(self, job: str, first: Say, second: Say) -> None:
        """Two workers read the same; the slower one may not write what it decided on what is over."""
        stale = self.world(job)
        self.tell(job, first.make(stale, self.now))
        late = self._arriving(second.make(stale, self.now))
        known, rows, now = _with_machine(stale, late), self._rows(), self.now
        try:
            after = self._run(self.db.write(lambda conn: UnitOfWork(conn, now).advance(known, late)))
        except repository.Stale:
            assert self._rows() == rows, "a decision is written as a whole or not at all"
            self._decide_again(job, known, late, second)
            return
        if self._rows() != rows:
            assert stale.job.version == self.world(job).job.version, "it was decided on what was still true"
            self._told(known, late, after)

    def _decide_again(self, job: str, stale: World, late: Fact, act: Say) -> None:
        """A writer whose first try was on old rows decides again, on what is true."""
        fact = self._arriving(act.make(self.world(job), self.now))
        before, tries = _with_machine(self.world(job), fact), [(stale, late)]

        def decide(unit: UnitOfWork) -> World:
            return unit.advance(*(tries.pop() if tries else (before, fact)))

        self._told(before, fact, self._write(decide))

    # What must hold

    def _told(self, before: World, fact: Fact, after: World) -> None:
        """The job is as `advance` decides, and so is everything beside it."""
        step, job = advance(before, fact, self.now), before.job
        self.books.told(before, fact, step, lambda: tuple(self.path))
        assert _plain(after) == _plain(step.world.with_job(events=job.events + len(step.events)))
        check_job(before, fact, step)
        told = enumerate((event.type for event in step.events), start=job.events + 1)
        others = {name: replace(w, machines=_shared(w, after)) for name, w in self.records.worlds.items()}
        self._expect(
            worlds={**others, job.id: _loaded(after)},
            machines={**self.records.machines, **after.machines},
            events={**self.records.events, job.id: [*self.records.events.get(job.id, []), *told]},
            effects=[*self.records.effects, *((effect.kind.value, effect.machine) for effect in step.effects)],
        )

    def _expect(self, **changes: Any) -> None:
        """Everything is as it was but for these."""
        expected = replace(self.records, **changes)
        self._looks += 1
        way = (*self.path, str(self._looks))
        if way in self.proven:
            self.records = expected
            return
        self.proven.add(way)
        self.records = self._run(self.db.read(lambda conn: _records(conn, list(expected.worlds))))
        assert self.records.worlds == expected.worlds
        assert self.records.machines == expected.machines
        assert self.records.effects == expected.effects, "what is to be done is stored with the decision"
        assert self.records.events == {job: told for job, told in expected.events.items() if told}
        for job, world in self.records.worlds.items():
            numbers = [n for n, _ in self.records.events.get(job, [])]
            assert numbers == list(range(1, world.job.events + 1)), "events are numbered without a gap"
            assert sum(attempt.live for attempt in world.attempts) <= 1, "at most one attempt lives"

    def _arriving(self, fact: Fact) -> Fact:
        """A placement speaks of a shared machine as its row is at that instant."""
        if not isinstance(fact, f.Placed):
            return fact
        known = self.records.machines
        for machine in fact.machines:
            if machine.id not in known and machine.id not in fact.new:
                row = insert(t.machines).values(codec.machine_row(machine))
                self._run(self.db.write(lambda conn, row=row: conn.execute(row).rowcount))
                self._expect(machines={**self.records.machines, machine.id: machine})
        machines = tuple(known.get(machine.id, machine) for machine in fact.machines)
        return replace(fact, machines=machines, new=fact.new - known.keys())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # `Runner.run` would set a handler of signals each time, and put all it is given into words.
        return self.runner.get_loop().run_until_complete(work)

    def _write(self, fn: Callable[[UnitOfWork], T]) -> T:
        return self._run(self.writer.write(fn))

    def _rows(self) -> list[list[tuple[Any, ...]]]:
        """All there is."""
        return self._run(self.db.read(lambda conn: [_rows(conn, table) for table in TABLES]))


def check_job(before: World, fact: Fact, step: Step) -> None:
    """What has ended stays ended unless somebody resumes it; a cancel is for ever until then."""
    job, was = step.world.job, before.job
    reopened = was.state.terminal and isinstance(fact, f.ResumeRequested)
    assert job.generation - was.generation == (reopened or job.desired is not was.desired)
    assert reopened or not was.state.terminal or step == Step(before)
    if was.desired is DesiredState.CANCEL and not reopened:
        assert len(step.world.attempts) == len(before.attempts), "no attempt after a cancel"
        assert all(effect.kind is EffectKind.TERMINATE for effect in step.effects)


def said_gone(machine: Machine, told: list[f.MachineFact]) -> bool:
    """Whether its provider made nothing, said twice that it is gone or never was, or a person declared it lost."""
    match told[-1]:
        case f.LaunchRefused():
            return machine.up_at is None and machine.claimed_by is None
        case f.SeenGone():
            return machine.launch_settled and _count(told, f.SeenGone, PRESENT) >= 2
        case f.FoundNothing():
            unsettled = machine.state is MachineState.RELEASING and not machine.launch_settled
            return unsettled and _count(told, f.FoundNothing, (f.HostSeen, f.LaunchSent, f.LaunchLost)) >= 2
        case f.DeclaredLost():
            return True
        case _:
            return False


def _count(told: list[f.MachineFact], kind: type, refuted_by: tuple[type, ...]) -> int:
    """How often this was said since it was last refuted."""
    since = itertools.takewhile(lambda fact: not isinstance(fact, refuted_by), reversed(told))
    return sum(isinstance(fact, kind) for fact in since)


def _records(conn: Connection, jobs: Iterable[str]) -> Records:
    e, x = t.events.c, t.effects.c
    events: dict[str, list[tuple[int, str]]] = {}
    for job, n, kind in conn.execute(select(e.job, e.n, e.type).order_by(e.cursor)).all():
        events.setdefault(job, []).append((n, kind))
    worlds = {job: repository.load_world(conn, job) for job in jobs}
    return Records(
        {job: world for job, world in worlds.items() if world is not None},
        {row["id"]: codec.machine_from_row(row) for row in conn.execute(select(t.machines)).mappings()},
        events,
        [(row.kind, row.machine) for row in conn.execute(select(x.kind, x.machine).order_by(x.id))],
    )


def _rows(conn: Connection, table: Table) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in conn.execute(select(table).order_by(*table.primary_key.columns))]


def _with_machine(world: World, fact: Fact) -> World:
    """A scheduler decides on a job together with the shared machines it has in mind."""
    there = [m for m in fact.machines if m.id not in fact.new] if isinstance(fact, f.Placed) else []
    return replace(world, machines={**world.machines, **{machine.id: machine for machine in there}})


def _loaded(world: World) -> World:
    """Without machines that it has no attempt on: a world is loaded so."""
    mine = {slot.machine for attempt in world.attempts for slot in attempt.slots}
    return replace(world, machines={name: machine for name, machine in world.machines.items() if name in mine})


def _shared(world: World, other: World) -> dict[str, Machine]:
    """Its machines, as they are after something happened to another job on them."""
    return {name: other.machines.get(name, machine) for name, machine in world.machines.items()}


def _plain(world: World) -> World:
    """Without versions, which only the database counts."""
    machines = {name: replace(machine, version=0) for name, machine in world.machines.items()}
    return replace(world, job=replace(world.job, version=0), machines=machines)


def _beside(world: World, machine: Machine, due_at: float | None) -> World:
    """A job's world after its machine changed: where that went away, or waits at its provider, the job is due."""
    slots = [slot for attempt in world.attempts for slot in attempt.slots if slot.machine == machine.id]
    seen = world.with_machine(machine) if slots else world
    if due_at is None or all(slot.ended for slot in slots):
        return seen
    return seen.with_job(due_at=due_at, version=world.job.version + 1)
