from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select
from tests.control.fakes import START
from tests.control.harness import ControlHarness, job_spec, make_attempt, make_machine, new_id

from crucible.control.db import schema as t
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.repository import Stale
from crucible.core.compute.offers import Billing, Market
from crucible.core.compute.resources import Allocation, Capacity, Resources
from crucible.core.ids import Prefix
from crucible.core.job.states import Condition
from crucible.core.lifecycle import (
    Attempt,
    AttemptState,
    DesiredState,
    Effect,
    EffectKind,
    Event,
    Job,
    JobState,
    Machine,
    MachineState,
    Reason,
    Slot,
    Step,
    World,
)
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.reasons import Retry
from crucible.core.scheduling.candidates import Candidate, list_candidates

TIMES = st.floats(0, 4e9, allow_nan=False)
MAYBE_TIME = st.none() | TIMES
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
COUNT = st.integers(0, 2**31 - 1)
NATURAL = st.none() | st.integers(-(2**31), 2**31 - 1)
SIZES = st.builds(
    Resources,
    cpus=st.none() | st.floats(0.01, 4096),
    memory_bytes=st.none() | st.integers(2**24, 2**46),
    gpus=st.integers(0, 8),
    seconds=st.none() | st.floats(1, 1e6),
)
JOBS = st.builds(
    Job,
    id=st.just(new_id(Prefix.JOB, 1)),
    spec=st.builds(job_spec, name=st.none() | st.just("näme"), env=st.dictionaries(st.just("A"), TEXT)),
    resources=SIZES,
    created_at=TIMES,
    project=st.sampled_from(["default", "other"]),
    user=TEXT,
    version=COUNT,
    generation=COUNT,
    state=st.sampled_from(JobState),
    desired=st.sampled_from(DesiredState),
    reason=st.none() | st.sampled_from(Reason),
    detail=TEXT,
    waiting=TEXT,
    placement=TEXT,
    conditions=st.frozensets(st.sampled_from(Condition)),
    used=st.dictionaries(st.sampled_from(Retry), COUNT),
    attempts=COUNT,
    events=COUNT,
    exit_code=NATURAL,
    signal=NATURAL,
    started_at=MAYBE_TIME,
    ended_at=MAYBE_TIME,
    not_before=TIMES,
    due_at=MAYBE_TIME,
    backend=st.just("rehearsal"),
    candidates=st.just((Candidate("rehearsal", Market.SPOT), Candidate("local"))),
    resume_from=st.none() | st.just("ckp-1"),
    attempts_before_reopen=COUNT,
    checkpoint=COUNT,
)
MACHINES = st.builds(
    Machine,
    id=st.just(new_id(Prefix.MACHINE, 1)),
    backend=st.just("local"),
    owner=TEXT,
    call=TEXT,
    rate=st.integers(0, 2**40),
    created_at=TIMES,
    launch_deadline=TIMES,
    capacity=st.builds(
        Capacity, cpus=st.floats(0, 64), memory_bytes=COUNT, gpus=st.lists(COUNT).map(tuple), gpu_name=TEXT
    ),
    instance_type=TEXT,
    region=TEXT,
    market=st.sampled_from(Market),
    node=TEXT,
    gang=st.none() | st.just(new_id(Prefix.MACHINE, 2)),
    simulated=st.booleans(),
    lease_seconds=st.none() | st.floats(0, 600),
    host_due=MAYBE_TIME,
    host_seconds=MAYBE_TIME,
    life_seconds=MAYBE_TIME,
    billing=st.builds(Billing, granularity=st.integers(1, 3600), minimum=COUNT),
    bills=st.booleans(),
    version=COUNT,
    state=st.sampled_from(MachineState),
    native_id=st.none() | TEXT,
    claimed_by=st.none() | TEXT,
    launch_settled=st.booleans(),
    empty_finds=COUNT,
    gone_sightings=COUNT,
    gone_since=MAYBE_TIME,
    settle_window=st.floats(0, 600),
    interrupted=st.booleans(),
    detail=TEXT,
    launched_at=MAYBE_TIME,
    queued_at=MAYBE_TIME,
    started_at=MAYBE_TIME,
    up_at=MAYBE_TIME,
    gone_at=MAYBE_TIME,
    ends_at=MAYBE_TIME,
    last_seen=MAYBE_TIME,
    withdrawing=st.booleans(),
)
SLOTS = st.lists(
    st.builds(
        Slot,
        rank=st.just(0),
        machine=st.just(new_id(Prefix.MACHINE, 1)),
        allocation=st.builds(Allocation, cpus=st.floats(0, 64), memory_bytes=COUNT, gpus=st.just((0, 3))),
        ended=st.booleans(),
        reason=st.none() | st.sampled_from(Reason),
    ),
    min_size=1,
    max_size=3,
).map(lambda slots: tuple(replace(slot, rank=i) for i, slot in enumerate(slots)))
ATTEMPTS = st.builds(
    Attempt,
    id=st.just(new_id(Prefix.ATTEMPT, 1)),
    job=st.just(new_id(Prefix.JOB, 1)),
    number=COUNT,
    generation=COUNT,
    backend=st.just("local"),
    slots=SLOTS,
    placed_at=TIMES,
    state=st.sampled_from(AttemptState),
    reason=st.none() | st.sampled_from(Reason),
    detail=TEXT,
    exit_code=NATURAL,
    signal=NATURAL,
    pid=st.none() | COUNT,
    started_at=MAYBE_TIME,
    exited_at=MAYBE_TIME,
    ended_at=MAYBE_TIME,
    last_seen=MAYBE_TIME,
    resume_from=st.none() | st.just("ckp-1"),
    noticed_at=MAYBE_TIME,
    stopping_since=MAYBE_TIME,
)


def first_world() -> World:
    candidates = list_candidates(job_spec())
    job = Job(new_id(Prefix.JOB, 1), job_spec(), Resources(cpus=1), START, candidates=candidates)
    return World(job)


async def stored(harness: ControlHarness, *machines: Machine) -> World:
    """A job with one attempt on one machine."""
    world = first_world()
    step = Step(world, (Event("submitted"),))
    world = await harness.sql(lambda conn: repository.insert_job(conn, step, START))
    machine = machines[0] if machines else make_machine(new_id(Prefix.MACHINE, 1))
    attempt = make_attempt(world.job, machine.id, new_id(Prefix.ATTEMPT, 1))
    placed = Step(world.with_machine(machine).with_attempt(attempt), (Event("placed"),))
    return await harness.sql(lambda conn: repository.save_step(conn, world, placed, START))


def save(world: World, step: Step, now: float = START) -> Any:
    return lambda conn: repository.save_step(conn, world, step, now)


class RolledBack(Exception):
    """Carries a result out of a transaction that leaves nothing behind."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def in_passing(fn: Callable[[Connection], Any]) -> Any:
    """What `fn` returns, on an empty database that stays empty. The inline database never suspends."""

    def undo(conn: Connection) -> None:
        raise RolledBack(fn(conn))

    with pytest.raises(RolledBack) as raised:
        EMPTY.write(undo).send(None)
    return raised.value.result


def empty_database() -> InlineDb:
    db = InlineDb()
    with pytest.raises(StopIteration):
        db.write(t.metadata.create_all).send(None)
    return db


EMPTY = empty_database()


@given(JOBS, ATTEMPTS, MACHINES)
def test_every_field_of_a_world_comes_back(job: Job, attempt: Attempt, machine: Machine) -> None:
    def round_trip(conn: Connection) -> World | None:
        conn.execute(insert(t.jobs).values(codec.job_row(job)))
        conn.execute(insert(t.machines).values(codec.machine_row(machine)))
        conn.execute(insert(t.attempts).values(codec.attempt_row(attempt)))
        conn.execute(insert(t.slots), [codec.slot_row(attempt.id, s) for s in attempt.slots])
        return repository.load_world(conn, job.id)

    assert in_passing(round_trip) == World(job, (attempt,), {machine.id: machine})


def test_the_strategies_leave_no_field_to_its_default() -> None:
    for kind, strategy in ((Job, JOBS), (Attempt, ATTEMPTS), (Machine, MACHINES)):
        assert all(f"{field.name}=" in repr(strategy) for field in fields(kind))


@given(JOBS, JOBS)
def test_an_update_stores_every_field_that_may_change(before: Job, after: Job) -> None:
    after = replace(after, version=before.version, spec=before.spec, resources=before.resources)

    def change(conn: Connection) -> tuple[World, World | None]:
        conn.execute(insert(t.jobs).values(codec.job_row(before)))
        saved = repository.save_step(conn, World(before), Step(World(after)), START)
        return saved, repository.load_world(conn, before.id)

    saved, found = in_passing(change)
    assert saved == found
    unnumbered = replace(after, events=before.events)
    assert found.job == (before if unnumbered == before else replace(unnumbered, version=before.version + 1))


async def test_what_is_saved_is_what_is_loaded(harness: ControlHarness) -> None:
    world = await stored(harness)
    assert await harness.world(world.job.id) == world


async def test_no_job_no_world(harness: ControlHarness) -> None:
    assert await harness.read(lambda conn: repository.load_world(conn, "job-none")) is None
    assert await harness.read(lambda conn: repository.load_machine(conn, "mch-none")) is None
    assert await harness.read(lambda conn: repository.load_machines(conn, [])) == {}


async def test_a_job_decided_on_an_old_version_is_stale(harness: ControlHarness) -> None:
    old = await stored(harness)
    await harness.sql(save(old, Step(old.with_job(detail="first"))))
    with pytest.raises(Stale):
        await harness.sql(save(old, Step(old.with_job(detail="second"))))
    assert (await harness.world(old.job.id)).job.detail == "first"


async def test_a_machine_decided_on_an_old_version_is_stale_and_nothing_else_of_the_step_stays(
    harness: ControlHarness,
) -> None:
    world = await stored(harness)
    machine = next(iter(world.machines.values()))
    await harness.change_machine(machine.id, f.LaunchAnswered("i-1"))
    late = world.with_machine(replace(machine, detail="late")).with_job(detail="late")
    with pytest.raises(Stale):
        await harness.sql(save(world, Step(late, (Event("late"),))))
    found = await harness.world(world.job.id)
    assert found.job.detail == ""
    assert [e["type"] for e in await harness.rows(t.events)] == ["submitted", "placed"]


async def test_versions_grow_only_with_changes(harness: ControlHarness) -> None:
    world = await stored(harness)
    same = await harness.sql(save(world, Step(world)))
    assert same == world
    changed = await harness.sql(save(same, Step(same.with_job(detail="new"))))
    assert changed.job.version == world.job.version + 1
    assert changed.machines == world.machines


async def test_events_are_numbered_without_gaps(harness: ControlHarness) -> None:
    world = await stored(harness)
    for batch in (("a", "b"), (), ("c",)):
        step = Step(world, tuple(Event(name, {"is": name}) for name in batch))
        world = await harness.sql(save(world, step, START + 1))
    rows = await harness.rows(t.events)
    assert [(r["n"], r["type"]) for r in rows] == [
        (1, "submitted"),
        (2, "placed"),
        (3, "a"),
        (4, "b"),
        (5, "c"),
    ]
    assert rows[-1]["at"] == START + 1
    assert rows[-1]["data"] == '{"is": "c"}'
    assert world.job.events == 5


async def test_a_step_undone_leaves_no_gap(harness: ControlHarness) -> None:
    world = await stored(harness)

    def broken(conn: Any) -> None:
        repository.save_step(conn, world, Step(world, (Event("lost"),)), START)
        raise RuntimeError("the process of deciding broke")

    with pytest.raises(RuntimeError):
        await harness.sql(broken)
    await harness.sql(save(world, Step(world, (Event("kept"),))))
    assert [(r["n"], r["type"]) for r in await harness.rows(t.events)][-1] == (3, "kept")


async def test_a_price_begins_with_the_answer_and_ends_with_the_machine(harness: ControlHarness) -> None:
    machine = make_machine(new_id(Prefix.MACHINE, 1), rate=526_000)
    await stored(harness, machine)
    assert await harness.rows(t.price_segments) == []
    harness.clock.move(10)
    await harness.change_machine(machine.id, f.LaunchAnswered("i-1"))
    harness.clock.move(5)
    await harness.change_machine(machine.id, f.HostSeen())
    (segment,) = await harness.rows(t.price_segments)
    assert (segment["starts_at"], segment["ends_at"], segment["rate"]) == (START + 10, None, 526_000)
    harness.clock.move(60)
    await harness.change_machine(machine.id, f.SeenGone(), f.SeenGone())
    (segment,) = await harness.rows(t.price_segments)
    assert (segment["starts_at"], segment["ends_at"]) == (START + 10, START + 75)


async def test_an_answer_repeated_opens_no_second_price(harness: ControlHarness) -> None:
    machine = make_machine(new_id(Prefix.MACHINE, 1), rate=1)
    await stored(harness, machine)
    await harness.change_machine(machine.id, f.LaunchAnswered("i-1"), f.LaunchAnswered("i-1"))
    assert await harness.count(t.price_segments) == 1


async def test_a_refused_machine_costs_nothing(harness: ControlHarness) -> None:
    machine = make_machine(new_id(Prefix.MACHINE, 1), rate=1)
    await stored(harness, machine)
    await harness.change_machine(machine.id, f.LaunchRefused("no"))
    assert await harness.rows(t.price_segments) == []


async def test_jobs_on_a_machine_that_is_gone_become_due(harness: ControlHarness) -> None:
    here = await harness.submit()
    ended, runner = await harness.running()
    await runner.end()
    harness.clock.move(7)
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    assert (await harness.world(here)).job.due_at == harness.clock.now()
    assert (await harness.world(ended)).job.due_at is None


async def test_a_decision_about_a_job_whose_machine_went_away_meanwhile_is_stale(harness: ControlHarness) -> None:
    world = await stored(harness)
    (machine,) = world.machines
    await harness.change_machine(machine, f.LaunchRefused("no room"))
    with pytest.raises(Stale):
        await harness.sql(save(world, Step(world.with_job(detail="late"))))


async def test_a_decision_that_touches_a_machine_which_changed_meanwhile_is_stale(harness: ControlHarness) -> None:
    world = await stored(harness)
    (machine,) = world.machines
    await harness.change_machine(machine, f.LaunchAnswered("i-1"))
    with pytest.raises(Stale):
        await harness.sql(save(world, Step(world, touched=frozenset({machine}))))


async def test_a_touched_machine_has_a_new_version(harness: ControlHarness) -> None:
    world = await stored(harness)
    (machine,) = world.machines
    after = await harness.sql(save(world, Step(world, touched=frozenset({machine}))))
    assert after.machines[machine].version == world.machines[machine].version + 1
    assert await harness.world(world.job.id) == after


async def test_a_changed_attempt_raises_the_version_of_its_job(harness: ControlHarness) -> None:
    world = await stored(harness)
    (attempt,) = world.attempts
    after = await harness.sql(save(world, Step(world.with_attempt(replace(attempt, detail="new")))))
    assert after.job.version == world.job.version + 1
    assert await harness.world(world.job.id) == after


async def test_touching_bumps_only_the_named_machines(harness: ControlHarness) -> None:
    world = await stored(harness)
    machine = next(iter(world.machines))
    other = make_machine(new_id(Prefix.MACHINE, 2))
    await harness.sql(lambda conn: conn.execute(insert(t.machines).values(codec.machine_row(other))).rowcount)

    async def versions() -> dict[str, int]:
        return {r["id"]: r["desired_version"] for r in await harness.rows(t.machines)}

    before = await versions()
    await harness.sql(save(world, Step(world, touched=frozenset({machine}))))
    assert await versions() == {**before, machine: before[machine] + 1}


async def test_effects_are_kept_in_their_order(harness: ControlHarness) -> None:
    world = await stored(harness)
    machine = next(iter(world.machines))
    wanted = (Effect(EffectKind.LAUNCH, machine), Effect(EffectKind.TERMINATE, machine))
    await harness.sql(save(world, Step(world, effects=wanted), START + 3))
    rows = await harness.rows(t.effects)
    assert [(r["kind"], r["done"], r["tries"]) for r in rows] == [
        ("launch", False, 0),
        ("terminate", False, 0),
    ]
    assert {r["not_before"] for r in rows} == {START + 3}


async def test_a_rank_that_ended_is_stored(harness: ControlHarness) -> None:
    world = await stored(harness)
    (attempt,) = world.attempts
    slots = tuple(replace(slot, ended=True) for slot in attempt.slots)
    await harness.sql(save(world, Step(world.with_attempt(replace(attempt, slots=slots)))))
    query = select(t.slots.c.ended)
    assert await harness.read(lambda conn: conn.execute(query).scalars().all()) == [True]
