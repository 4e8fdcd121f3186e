"""The lifecycle through the database: every transition there is, and random histories of everything that can happen.

`--database postgres` runs both on PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.control.harness import empty_database, give_back
from tests.control.stored import Stored
from tests.core.lifecycle.acts import (
    BY_NAME,
    MACHINE_FACTS,
    PASSES,
    PLACE,
    SAYINGS,
    SIGHTINGS,
    Act,
    Claim,
    Contact,
    Pass,
    Say,
    attempt_for,
)
from tests.core.lifecycle.explore import STARTS, Walk, first_job
from tests.core.lifecycle.moves import Books, Path
from tests.scale import Record, Scale

from crucible.core.lifecycle import AttemptState, Fact, JobState, Machine, MachineState, World
from crucible.core.lifecycle import facts as f

JOBS = ("job-1", "job-2")
ENDS = ("CancelRequested", "NothingSaved")
"""What ends a whole job at once: said seldom, or nothing else would be seen."""
COMMON = [act for act in SAYINGS if act.name not in ENDS]
PLACED = [act for act in SAYINGS if act.name.startswith("Placed") and not act.vain]
EXITED = [act for act in SAYINGS if act.name.startswith("RunnerExited") and not act.vain]
HOST_SPEAKS = next(act for act in SIGHTINGS if act.name == "its host speaks")

Fresh = Callable[[Books], Stored]


@pytest.fixture
def fresh() -> Iterator[Fresh]:
    """Makes an empty database, and takes back the one before."""
    with asyncio.Runner() as runner:
        made: list[Stored] = []

        def make(books: Books) -> Stored:
            if made:
                runner.run(give_back(made.pop().db))
            made.append(Stored(runner.run(empty_database()), runner, books))
            return made[-1]

        yield make
        if made:
            runner.run(give_back(made.pop().db))


@pytest.mark.timeout(600)
def test_every_allowed_transition_is_stored_as_it_was_decided(fresh: Fresh, record: Record) -> None:
    walk, books, proven = Walk(), Books(), set[Path]()
    walk.jobs()
    for seen, here in ((walk.books.jobs, books.jobs), (walk.books.attempts, books.attempts)):
        for move, path in seen.paths.items():
            if here.lacks(move):
                stored = fresh(books)
                stored.proven = proven
                replay(stored, path)
    assert books.surprises() == []
    assert books.jobs.missing() + books.attempts.missing() == []
    record("state exploration", stored=books.jobs.reached + books.attempts.reached)


def replay(stored: Stored, path: Path) -> None:
    """The way that a walk went, on a database."""
    start, *names = path
    stored.path.append(start)
    stored.begin(STARTS[start]())
    for name in names:
        stored.act("job-1", BY_NAME[name])


class Histories(RuleBasedStateMachine):
    """Two jobs that may share machines, told everything by everyone, by processes that die and overtake each other."""

    begun = steps = 0

    def __init__(self, fresh: Fresh, books: Books) -> None:
        super().__init__()
        type(self).begun += 1
        self.stored = fresh(books)

    @initialize(start=st.sampled_from(sorted(STARTS)))
    def submit(self, start: str) -> None:
        self.stored.begin(STARTS[start]())
        self.stored.begin(first_job("job-2"))

    @invariant()
    def counted(self) -> None:
        type(self).steps += 1

    @rule(job=st.sampled_from(JOBS), times=st.integers(1, 5), data=st.data())
    def goes_well(self, job: str, times: int, data: st.DataObject) -> None:
        """What usually comes next."""
        for _ in range(times):
            for act in self.next(self.stored.world(job), data):
                self.stored.act(job, act)

    def next(self, world: World, data: st.DataObject) -> tuple[Act, ...]:
        live = world.live
        if live is None:
            return (data.draw(st.sampled_from(usual(world.job.state))),)
        if world.machines[live.slots[0].machine].state in (
            MachineState.INTENDED,
            MachineState.CREATING,
            MachineState.QUEUED,
        ):
            return Claim(), HOST_SPEAKS
        if live.state is AttemptState.RUNNING:
            return (data.draw(st.sampled_from(EXITED)),)
        if live.state is AttemptState.SAVING:
            return (BY_NAME["RunnerEnded"],)
        return (BY_NAME["RunnerStarted"],)

    @rule(job=st.sampled_from(JOBS), act=st.sampled_from(COMMON))
    def say(self, job: str, act: Say) -> None:
        self.stored.act(job, act)

    @rule(job=st.sampled_from(JOBS), name=st.sampled_from(ENDS), chance=st.integers(0, 3))
    def end(self, job: str, name: str, chance: int) -> None:
        if chance == 0:
            self.stored.act(job, BY_NAME[name])

    @rule(job=st.sampled_from(JOBS), act=st.sampled_from([*SIGHTINGS, Claim(), Contact(), *PASSES]))
    def happen(self, job: str, act: Act) -> None:
        self.stored.act(job, act)

    @rule(act=st.sampled_from([Pass(1.0), *PASSES]), job=st.sampled_from(JOBS))
    def look_again(self, act: Pass, job: str) -> None:
        self.stored.act(job, act)
        self.stored.act(job, BY_NAME["Tick"])

    @rule(make=st.sampled_from(MACHINE_FACTS), data=st.data())
    def machine(self, make: Callable[[float], f.MachineFact], data: st.DataObject) -> None:
        known = sorted(self.stored.records.machines)
        if known:
            self.stored.show(data.draw(st.sampled_from(known)), make(self.stored.now))

    @rule(job=st.sampled_from(JOBS), data=st.data())
    def share(self, job: str, data: st.DataObject) -> None:
        """Placed beside another job, or on a machine that is on its way out."""
        pool = [m for m in self.stored.records.machines.values() if m.owner == f"pool:{PLACE}"]
        if pool:
            chosen = data.draw(st.sampled_from(sorted(pool, key=lambda m: m.id)))
            self.stored.tell(job, beside(self.stored.world(job), chosen, self.stored.now))

    @precondition(lambda self: self.stored.said)
    @rule(job=st.sampled_from(JOBS), data=st.data())
    def again(self, job: str, data: st.DataObject) -> None:
        """Something that was said before comes once more, or comes late, or to the wrong job."""
        self.stored.tell(job, data.draw(st.sampled_from(self.stored.said)))

    @rule(job=st.sampled_from(JOBS), act=st.sampled_from(SAYINGS))
    def die(self, job: str, act: Say) -> None:
        world = self.stored.world(job)
        self.stored.die_before_commit(job, act.make(world, self.stored.now))

    @rule(job=st.sampled_from(JOBS), first=st.sampled_from(COMMON), second=st.sampled_from(COMMON))
    def race(self, job: str, first: Say, second: Say) -> None:
        self.stored.two_decide(job, first, second)

    @rule()
    def restart(self) -> None:
        self.stored.restart()


def usual(state: JobState) -> list[Say]:
    if state is JobState.PENDING:
        return [BY_NAME["Planned"]]  # type: ignore[list-item]
    if state is JobState.QUEUED:
        return PLACED
    return [BY_NAME["ResumeRequested"]]  # type: ignore[list-item]


def beside(world: World, machine: Machine, now: float) -> Fact:
    return f.Placed(attempt_for(world, machine, now=now), (machine,), "there is room beside another")


@pytest.mark.timeout(3600)
def test_random_histories_leave_what_was_decided_and_only_what_is_allowed(
    fresh: Fresh, scale: Scale, record: Record
) -> None:
    books = Books()
    run_state_machine_as_test(
        lambda: Histories(fresh, books),  # type: ignore[arg-type]  # it takes a factory too
        settings=settings(
            max_examples=scale.steps,
            stateful_step_count=scale.steps,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert books.surprises() == []
    reached = sum(book.reached for book in books.all)
    record("state exploration", histories=Histories.begun, steps=Histories.steps, transitions=reached)
