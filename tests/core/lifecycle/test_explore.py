"""Every state and every fact: what may follow is in one table, all of it does, and nothing else can."""

from __future__ import annotations

import itertools
import typing
from dataclasses import replace

import pytest
from tests.core.lifecycle.acts import MACHINE_FACTS, SAYINGS, attempt_for, own_machine
from tests.core.lifecycle.allowed import ANY, ATTEMPTS, JOBS, MACHINES, TOGETHER, Rule
from tests.core.lifecycle.builders import NOW
from tests.core.lifecycle.explore import STARTS, Walk, first_job
from tests.core.lifecycle.moves import NONE, Book, Move
from tests.scale import Record

from crucible.core.lifecycle import (
    AttemptState,
    DesiredState,
    EffectKind,
    JobState,
    MachineState,
    Step,
    World,
    advance,
    advance_machine,
)
from crucible.core.lifecycle import facts as f

JOB_FACTS = {fact.__name__ for fact in typing.get_args(f.Fact)}
FACTS_OF_MACHINES = {fact.__name__ for fact in typing.get_args(f.MachineFact)}


@pytest.mark.timeout(600)
def test_every_allowed_transition_is_reached_and_no_other(record: Record) -> None:
    walk = Walk(check=check)
    walk.machines()
    walk.jobs()
    books = walk.books
    assert books.surprises() == []
    assert walk.vain == [], "what speaks of another attempt, or of what is over, changes nothing"
    assert books.missing() == []
    assert {job for job, _, _ in walk.states} == {state.value for state in JobState}
    assert all(attempt in TOGETHER[job].split() for job, attempt, _ in walk.states)
    reached = sum(book.reached for book in books.all)
    record("state exploration", states=len(walk.states), pairs=walk.pairs, transitions=reached)


def check(before: World, step: Step) -> None:
    """What holds for every step, beside the table."""
    job, was = step.world.job, before.job
    assert sum(attempt.live for attempt in step.world.attempts) <= 1
    assert job.generation >= was.generation
    if was.desired is DesiredState.CANCEL and job.desired is DesiredState.CANCEL:
        assert all(effect.kind is EffectKind.TERMINATE for effect in step.effects), "no launch after a cancel"
        assert len(step.world.attempts) == len(before.attempts)
    for name, machine in before.machines.items():
        after = step.world.machines[name]
        if after.state is not machine.state:
            assert (machine.wanted, after.state) == (True, MachineState.RELEASING), "a job only gives machines back"


def test_any_fact_in_any_world_gives_an_answer_even_in_those_that_cannot_be() -> None:
    """Every job state beside every attempt state beside every machine state."""
    for job, attempt, machine in itertools.product(JobState, AttemptState, MachineState):
        world = forced(job, attempt, machine)
        for act in SAYINGS:
            fact = act.make(world, NOW)
            step = advance(world, fact, NOW)
            assert step == advance(world, fact, NOW)
            launches = [effect for effect in step.effects if effect.kind is EffectKind.LAUNCH]
            assert not launches or isinstance(fact, f.Placed)


def forced(job: JobState, attempt: AttemptState, machine: MachineState) -> World:
    world = first_job(state=job)
    own = replace(own_machine(world, NOW), state=machine)
    tried = replace(attempt_for(world, own, now=NOW), state=attempt)
    return world.with_machine(own).with_attempt(tried).with_job(attempts=1)


@pytest.mark.parametrize("state", MachineState)
def test_any_fact_about_a_machine_in_any_state_gives_an_answer(state: MachineState) -> None:
    machine = replace(own_machine(first_job(), NOW), state=state)
    for make in MACHINE_FACTS:
        assert advance_machine(machine, make(NOW), NOW) == advance_machine(machine, make(NOW), NOW)


def test_every_fact_there_is_takes_part() -> None:
    said = {type(act.make(STARTS["new"](), NOW)).__name__ for act in SAYINGS}
    assert said == JOB_FACTS
    assert {type(make(NOW)).__name__ for make in MACHINE_FACTS} == FACTS_OF_MACHINES


@pytest.mark.parametrize(
    ("rules", "states", "facts"),
    [
        (JOBS, {state.value for state in JobState}, JOB_FACTS | {ANY}),
        (ATTEMPTS, {state.value for state in AttemptState} | {NONE}, JOB_FACTS),
        (MACHINES, {state.value for state in MachineState}, FACTS_OF_MACHINES),
    ],
    ids=["jobs", "attempts", "machines"],
)
def test_the_table_speaks_of_states_and_facts_that_exist_and_says_nothing_twice(
    rules: tuple[Rule, ...], states: set[str], facts: set[str]
) -> None:
    assert {rule.state for rule in rules} | {rule.becomes for rule in rules} <= states
    assert {rule.fact for rule in rules} <= facts
    said = [(rule.state, rule.fact, rule.becomes) for rule in rules]
    assert len(said) == len(set(said))


RULE = Rule("queued", "Placed", "starting", ("told?", "placed"), ("launch?",), (), "")


def test_a_row_that_never_happens_is_told() -> None:
    assert Book((RULE,)).missing() == ["queued + Placed -> starting: never"]


def test_a_word_that_comes_always_or_never_is_told_where_the_row_says_sometimes() -> None:
    book = Book((RULE,))
    book.note(Move("queued", "Placed", "starting", ("placed",), ("launch",)), lambda: ("new",))
    lacks = ["queued + Placed -> starting: never with told", "queued + Placed -> starting: never without launch"]
    assert book.missing() == lacks
    book.note(Move("queued", "Placed", "starting", ("told", "placed")), lambda: ("new",))
    assert book.missing() == []


@pytest.mark.parametrize(
    "move",
    [
        Move("queued", "Placed", "running", ("placed",)),
        Move("queued", "Waits", "queued"),
        Move("queued", "Placed", "starting"),
        Move("queued", "Placed", "starting", ("placed", "told")),
        Move("queued", "Placed", "starting", ("placed",), ("terminate",)),
    ],
    ids=["another state", "another fact", "a word too few", "another order", "another effect"],
)
def test_what_no_row_allows_is_told_with_the_way_there(move: Move) -> None:
    book = Book((RULE,))
    book.note(move, lambda: ("new", "Placed"))
    assert book.surprises() == [f"{move}, by new > Placed"]


def test_a_fact_that_changes_nothing_needs_no_row() -> None:
    book = Book((RULE,))
    book.note(Move("queued", "Waits", "queued", noted=False), lambda: ("new",))
    assert book.surprises() == []
