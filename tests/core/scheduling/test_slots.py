"""What a node has, what is free of it, and what a job takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.resources import Allocation, Capacity, GiB, Resources
from crucible.core.scheduling.slots import NodeSlots, UsedSlots, allocate, demand, why_full, why_too_small

HERE = Capacity(cpus=8, memory_bytes=32 * GiB, gpus=(0, 1, 2, 3), gpu_memory_bytes=16 * GiB)


def node(*used: UsedSlots, capacity: Capacity = HERE, max_attempts: int | None = None) -> NodeSlots:
    return NodeSlots(capacity, used, max_attempts)


def held(holder: str, cpus: float = 1, memory: int = GiB, gpus: tuple[int, ...] = ()) -> UsedSlots:
    return UsedSlots(holder, Allocation(cpus=cpus, memory_bytes=memory, gpus=gpus))


def small(cpus: float = 1, memory: int = GiB, gpus: int = 0) -> Resources:
    return Resources(cpus=cpus, memory_bytes=memory, gpus=gpus)


def test_a_job_without_a_size_takes_the_whole_machine() -> None:
    whole = Allocation(cpus=8, memory_bytes=32 * GiB, gpus=(0, 1, 2, 3))
    assert allocate(Resources(), node()) == whole
    assert allocate(Resources(), node(held("job-x", cpus=0.1))) is None
    assert allocate(small(), node(UsedSlots("job-x", whole))) is None


def test_a_whole_machine_with_a_number_of_gpus_takes_just_those() -> None:
    assert allocate(Resources(gpus=1), node()) == Allocation(cpus=8, memory_bytes=32 * GiB, gpus=(0,))


def test_memory_without_a_size_follows_the_share_of_the_cpus() -> None:
    assert demand(Resources(cpus=2), HERE) == (2, 8 * GiB, 0)
    assert demand(Resources(cpus=99), HERE) == (99, 32 * GiB, 0)


def test_cpus_without_a_size_are_one_at_most() -> None:
    assert demand(Resources(memory_bytes=GiB), HERE) == (1, GiB, 0)
    assert demand(Resources(memory_bytes=GiB), Capacity(cpus=0.5, memory_bytes=GiB)) == (0.5, GiB, 0)


@pytest.mark.parametrize("count", range(1, 11))
def test_fractions_of_cpus_add_up_to_the_whole(count: int) -> None:
    tenth = small(0.1, memory=GiB // 10)
    full = after(node(capacity=Capacity(cpus=count / 10, memory_bytes=GiB)), [tenth] * (count + 1))
    assert len(full.used) == count


def test_gpus_that_others_use_are_not_given() -> None:
    shared = replace(node(held("job-x", gpus=(0,))), busy_gpus=(1, 2))
    assert allocate(small(gpus=1), shared) == Allocation(cpus=1, memory_bytes=GiB, gpus=(3,))
    assert allocate(small(gpus=2), shared) is None
    assert why_full(small(gpus=2), shared) == "waits for 2 GPUs: 1 free, held by job-x, programs outside Crucible"
    whole = replace(node(), busy_gpus=(1,))
    assert allocate(Resources(), whole) is None
    assert "programs outside Crucible uses now" in why_full(Resources(), whole)


def test_gpus_are_given_by_index() -> None:
    found = allocate(small(gpus=2), node(held("job-x", gpus=(1,))))
    assert found is not None
    assert found.gpus == (0, 2)


def test_no_more_attempts_than_may_run_there() -> None:
    busy = node(held("job-a"), held("job-b"), max_attempts=2)
    assert busy.is_full
    assert allocate(small(), busy) is None
    assert why_full(small(), busy) == "waits for a turn: 2 jobs may run there at once, now job-a, job-b"
    assert why_full(small(), node(held("job-a"), max_attempts=1)).startswith("waits for a turn: 1 job may run there")
    assert allocate(small(), node(held("job-a"), max_attempts=2)) is not None


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
def test_the_reason_says_what_is_missing_and_who_has_it(need: Resources, taken: UsedSlots, words: str) -> None:
    assert allocate(need, node(taken)) is None
    assert why_full(need, node(taken)) == words


def test_all_holders_are_named_once() -> None:
    busy = node(held("job-b", cpus=4), held("job-a", cpus=2), held("job-b", cpus=2))
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
def test_why_a_node_could_never_hold_it(need: Resources, words: str) -> None:
    assert why_too_small(need, HERE) == words


def test_a_computer_without_gpus_says_so() -> None:
    assert why_too_small(small(gpus=1), Capacity(cpus=8, memory_bytes=32 * GiB)).endswith("this computer has none")


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


def assert_within(slots: NodeSlots) -> None:
    used = [one.allocation for one in slots.used]
    gpus = [gpu for one in used for gpu in one.gpus]
    assert sum(one.cpus for one in used) <= slots.capacity.cpus + 1e-6
    assert sum(one.memory_bytes for one in used) <= slots.capacity.memory_bytes
    assert len(gpus) == len(set(gpus))
    assert set(gpus) <= set(slots.capacity.gpus)


def after(slots: NodeSlots, wanted: list[Resources]) -> NodeSlots:
    """Return the node with slots for each of these needs for which there is room, in turn."""
    for number, need in enumerate(wanted):
        found = allocate(need, slots)
        if found is not None:
            slots = replace(slots, used=(*slots.used, UsedSlots(f"job-{number}", found)))
    return slots


@given(st.lists(needs, max_size=12), st.lists(needs, max_size=12))
def test_never_more_is_given_out_than_there_is(first: list[Resources], second: list[Resources]) -> None:
    busy = after(node(), first)
    assert_within(busy)
    assert_within(after(busy, second))


@given(st.lists(needs, max_size=12), needs)
def test_what_fits_beside_others_fits_on_the_empty_node(others: list[Resources], need: Resources) -> None:
    if allocate(need, after(node(), others)) is not None:
        assert allocate(need, node()) is not None
        assert why_too_small(need, HERE) == ""
