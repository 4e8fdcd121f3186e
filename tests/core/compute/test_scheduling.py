from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.resources import Allocation, Capacity, GiB, Resources
from crucible.core.compute.scheduling import (
    QueuedJob,
    SlotPool,
    UsedSlots,
    allocate,
    by_priority,
    demand,
    place_fifo,
    why_full,
    why_never,
)

HERE = Capacity(cpus=8, memory_bytes=32 * GiB, gpus=(0, 1, 2, 3), gpu_memory_bytes=16 * GiB)


def place(*taken: UsedSlots, capacity: Capacity = HERE, backend: str = "local") -> SlotPool:
    return SlotPool(backend, "mch-1", capacity, taken)


def held(holder: str, cpus: float = 1, memory: int = GiB, gpus: tuple[int, ...] = ()) -> UsedSlots:
    return UsedSlots(holder, Allocation(cpus=cpus, memory_bytes=memory, gpus=gpus))


def queue(*needs: Resources, backend: str = "local") -> list[QueuedJob]:
    return [QueuedJob(f"job-{i}", backend, need) for i, need in enumerate(needs)]


def small(cpus: float = 1, memory: int = GiB, gpus: int = 0) -> Resources:
    return Resources(cpus=cpus, memory_bytes=memory, gpus=gpus)


def test_jobs_are_placed_in_the_order_of_the_queue() -> None:
    decisions = place_fifo(queue(small(4), small(4)), [place()])
    assert [(d.job, d.allocation) for d in decisions] == [
        ("job-0", Allocation(cpus=4, memory_bytes=GiB)),
        ("job-1", Allocation(cpus=4, memory_bytes=GiB)),
    ]


def waiting(user: str, priority: int, job: str = "job") -> QueuedJob:
    return QueuedJob(job, "local", Resources(), user, priority)


def test_a_user_orders_their_own_jobs_and_nobody_elses() -> None:
    queue = [waiting("ada", 0, "a1"), waiting("bob", 9, "b1"), waiting("ada", 5, "a2"), waiting("ada", 5, "a3")]
    assert [queued.job for queued in by_priority(queue)] == ["a2", "b1", "a3", "a1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3))))
def test_positions_stay_with_their_owners_and_ties_in_order_of_arrival(said: list[tuple[str, int]]) -> None:
    queue = [waiting(user, priority, f"job-{n:03}") for n, (user, priority) in enumerate(said)]
    found = by_priority(queue)
    assert [queued.user for queued in found] == [queued.user for queued in queue]
    assert sorted(queued.job for queued in found) == [queued.job for queued in queue]
    for user in {queued.user for queued in queue}:
        turns = [(-queued.priority, queued.job) for queued in found if queued.user == user]
        assert turns == sorted(turns)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), min_size=1), st.integers(0), st.integers(-3, 3))
def test_another_priority_changes_no_position_of_others(said: list[tuple[str, int]], which: int, priority: int) -> None:
    queue = [waiting(user, given, f"job-{n:03}") for n, (user, given) in enumerate(said)]
    at = which % len(queue)
    changed = [*queue[:at], replace(queue[at], priority=priority), *queue[at + 1 :]]
    before, after = by_priority(queue), by_priority(changed)
    for old, new in zip(before, after, strict=True):
        assert old == new or old.user == new.user == queue[at].user


def test_the_first_that_does_not_fit_holds_back_all_behind_it() -> None:
    decisions = place_fifo(queue(small(6), small(4), small(1)), [place()])
    assert [(d.job, d.allocation is None) for d in decisions] == [("job-0", False), ("job-1", True)]
    assert decisions[1].why == "waits for 4 CPUs: 2 free, held by job-0"


def test_a_full_place_does_not_hold_back_another() -> None:
    full = place(held("job-x", cpus=8))
    jobs = [*queue(small()), QueuedJob("job-9", "slurm", small())]
    decisions = place_fifo(jobs, [full, place(backend="slurm")])
    assert [(d.job, d.allocation is None) for d in decisions] == [("job-0", True), ("job-9", False)]


def test_a_job_that_cannot_fit_there_waits_and_holds_back_nobody() -> None:
    decisions = place_fifo(queue(small(gpus=5), small()), [place()])
    assert [(d.job, d.allocation is None) for d in decisions] == [("job-0", True), ("job-1", False)]
    assert decisions[0].why == "asks for 5 GPUs; this computer has 4"


def test_a_job_for_a_place_that_is_not_there_is_passed_over() -> None:
    assert place_fifo([QueuedJob("job-1", "aws", small())], [place()]) == []
    assert place_fifo([], [place()]) == []


def test_gpus_are_given_by_index_and_never_twice() -> None:
    decisions = place_fifo(queue(small(gpus=2), small(gpus=1)), [place(held("job-x", gpus=(1,)))])
    assert [d.allocation.gpus for d in decisions if d.allocation] == [(0, 2), (3,)]


def test_a_job_without_a_size_takes_the_whole_machine() -> None:
    whole = Allocation(cpus=8, memory_bytes=32 * GiB, gpus=(0, 1, 2, 3))
    assert allocate(Resources(), place()) == whole
    assert allocate(Resources(), place(held("job-x", cpus=0.1))) is None
    assert allocate(small(), place(UsedSlots("job-x", whole))) is None


def test_a_whole_machine_with_a_number_of_gpus_takes_just_those() -> None:
    assert allocate(Resources(gpus=1), place()) == Allocation(cpus=8, memory_bytes=32 * GiB, gpus=(0,))


def test_memory_that_is_not_said_goes_by_the_part_of_the_cpus() -> None:
    assert demand(Resources(cpus=2), HERE) == (2, 8 * GiB, 0)
    assert demand(Resources(cpus=99), HERE) == (99, 32 * GiB, 0)


def test_cpus_that_are_not_said_are_one_at_most() -> None:
    assert demand(Resources(memory_bytes=GiB), HERE) == (1, GiB, 0)
    assert demand(Resources(memory_bytes=GiB), Capacity(cpus=0.5, memory_bytes=GiB)) == (0.5, GiB, 0)


@pytest.mark.parametrize("count", range(1, 11))
def test_fractions_of_cpus_add_up_to_the_whole(count: int) -> None:
    tenth = small(0.1, memory=GiB // 10)
    here = place(capacity=Capacity(cpus=count / 10, memory_bytes=GiB))
    decisions = place_fifo(queue(*[tenth] * (count + 1)), [here])
    assert [d.allocation is not None for d in decisions] == [True] * count + [False]


@pytest.mark.parametrize(
    ("need", "taken", "words"),
    [
        (
            Resources(),
            held("job-a"),
            "wants the whole computer, which job-a uses now; with --cpus or --tier it could run beside",
        ),
        (small(gpus=2), held("job-a", gpus=(0, 1, 2)), "waits for 2 GPUs: 1 free, held by job-a"),
        (small(gpus=1), held("job-a", gpus=(0, 1, 2, 3)), "waits for 1 GPU: 0 free, held by job-a"),
        (small(cpus=2.5), held("job-a", cpus=7), "waits for 2.5 CPUs: 1 free, held by job-a"),
        (small(memory=2 * GiB), held("job-a", memory=31 * GiB), "waits for 2 GiB of memory: held by job-a"),
    ],
)
def test_a_waiting_job_is_told_what_is_missing_and_who_has_it(need: Resources, taken: UsedSlots, words: str) -> None:
    assert allocate(need, place(taken)) is None
    assert why_full(need, place(taken)) == words


def test_all_holders_are_named_once() -> None:
    busy = place(held("job-b", cpus=4), held("job-a", cpus=2), held("job-b", cpus=2))
    assert why_full(small(), busy).endswith("held by job-a, job-b")


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (small(), ""),
        (Resources(), ""),
        (small(gpus=5), "asks for 5 GPUs; this computer has 4"),
        (
            Resources(gpus=1, gpu_memory_bytes=24 * GiB),
            "asks for GPUs with 24 GiB; this computer has 16 GiB on each",
        ),
        (Resources(gpu_memory_bytes=24 * GiB), ""),
        (small(cpus=8.5), "asks for 8.5 CPUs; this computer has 8"),
        (small(memory=33 * GiB), "asks for 33 GiB of memory; this computer has 32 GiB"),
    ],
)
def test_why_a_place_could_never_hold_it(need: Resources, words: str) -> None:
    assert why_never(need, HERE) == words


def test_a_computer_without_gpus_says_so() -> None:
    assert why_never(small(gpus=1), Capacity(cpus=8, memory_bytes=32 * GiB)).endswith("this computer has none")


needs = st.one_of(
    st.just(Resources()),
    st.builds(Resources, gpus=st.integers(0, 4)),
    st.builds(Resources, cpus=st.floats(0.01, 8)),
    st.builds(
        Resources,
        cpus=st.floats(0.01, 8),
        memory_bytes=st.integers(GiB // 8, 32 * GiB),
        gpus=st.integers(0, 4),
    ),
)


def assert_within(somewhere: SlotPool) -> None:
    slots = [t.allocation for t in somewhere.used]
    gpus = [gpu for a in slots for gpu in a.gpus]
    assert sum(a.cpus for a in slots) <= somewhere.capacity.cpus + 1e-6
    assert sum(a.memory_bytes for a in slots) <= somewhere.capacity.memory_bytes
    assert len(gpus) == len(set(gpus))
    assert set(gpus) <= set(somewhere.capacity.gpus)


def after(somewhere: SlotPool, line: list[QueuedJob]) -> SlotPool:
    """The place once the decisions for this queue are carried out."""
    given_out = [UsedSlots(d.job, d.allocation) for d in place_fifo(line, [somewhere]) if d.allocation]
    return replace(somewhere, used=(*somewhere.used, *given_out))


@given(st.lists(needs, max_size=12), st.lists(needs, max_size=12))
def test_never_more_is_given_out_than_there_is(first: list[Resources], second: list[Resources]) -> None:
    busy = after(place(), queue(*first))
    assert_within(busy)
    assert_within(after(busy, queue(*second)))


@given(st.lists(needs, max_size=12))
def test_decisions_are_the_beginning_of_the_queue_and_wait_at_most_once(wanted: list[Resources]) -> None:
    decisions = place_fifo(queue(*wanted), [place()])
    assert [d.job for d in decisions] == [f"job-{i}" for i in range(len(decisions))]
    assert all(d.allocation is not None for d in decisions[:-1])
    assert all(d.why for d in decisions if d.allocation is None)


@given(st.lists(needs, min_size=1, max_size=12), st.data())
def test_every_job_that_can_fit_gets_its_turn(wanted: list[Resources], data: st.DataObject) -> None:
    """Whoever ends, in whatever order, nobody waits for ever and nobody overtakes."""
    line, here, begun = queue(*wanted), place(), list[str]()
    for _ in range(2 * len(wanted)):
        here = after(here, line)
        running = {t.holder for t in here.used}
        begun += [w.job for w in line if w.job in running]
        line = [w for w in line if w.job not in running]
        assert_within(here)
        if running:
            ends = data.draw(st.sampled_from(sorted(running)))
            here = replace(here, used=tuple(t for t in here.used if t.holder != ends))
    assert begun == [f"job-{i}" for i in range(len(wanted))]
