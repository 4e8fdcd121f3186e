"""What the whole job costs at a place, and when it is done there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.routing.market import FIRST_HOUR, HOUR, KNOWN, at, offer, spot, taken_back, work

from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import GiB, Resources
from crucible.core.routing.estimate import GB, LONGEST, MONTH, estimate
from crucible.core.routing.profile import Confidence, GpuNeed
from crucible.core.routing.workload import ComputeTime, Workload

T4 = offer("aws/us-east-1/g4dn.xlarge", 0.526)


def test_the_start_is_paid_for_too() -> None:
    found = estimate(work(2.0), T4, KNOWN)
    assert found.eta == 2 * HOUR + 300
    assert found.total == math.ceil(526_000 * (2 * HOUR + 300) / HOUR)


def test_a_minimum_is_paid_even_by_a_short_job() -> None:
    short = work(0.05)
    least = estimate(short, offer("aws/r/t", 1.0, billing=FIRST_HOUR), KNOWN)
    by_second = estimate(short, offer("modal/r/t", 1.0), KNOWN)
    assert (least.total, by_second.total) == (MICROS, math.ceil(MICROS * 480 / HOUR))


def test_waiting_is_not_paid_for() -> None:
    waiting = estimate(work(), offer("aws/r/t", 0.526, wait_seconds=600.0), KNOWN)
    assert waiting.total == estimate(work(), T4, KNOWN).total
    assert waiting.eta == 2 * HOUR + 900


def test_a_faster_gpu_is_done_sooner() -> None:
    found = estimate(work(2.0), offer("aws/r/p4d", 4.0, "A100"), KNOWN)
    assert found.seconds == 2 * HOUR / 8
    assert found.confidence is Confidence.MEDIUM


def test_what_was_measured_there_stays_as_sure_as_it_was() -> None:
    sure = Workload(Resources(gpus=1), GpuNeed.REQUIRED, ComputeTime(HOUR, "T4", confidence=Confidence.HIGH))
    assert estimate(sure, T4, KNOWN).confidence is Confidence.HIGH


def test_hours_that_the_owner_named_hold_everywhere() -> None:
    said = work(3.0, gpu="")
    assert estimate(said, offer("aws/r/p4d", 4.0, "A100"), KNOWN).seconds == 3 * HOUR


def test_a_gpu_that_nobody_knows_is_a_rough_guess() -> None:
    found = estimate(work(2.0), offer("aws/r/t", 1.0, "X9000"), KNOWN)
    assert (found.seconds, found.confidence) == (2 * HOUR, Confidence.LOW)


def test_gpus_that_it_does_not_ask_for_do_not_help() -> None:
    assert estimate(work(2.0), offer("aws/r/t", 1.0, gpus=4), KNOWN).seconds == 2 * HOUR


def test_four_gpus_are_a_little_less_than_four_times_as_fast() -> None:
    four = Workload(Resources(gpus=4), GpuNeed.REQUIRED, ComputeTime(HOUR, "T4"))
    assert estimate(four, offer("aws/r/t", 1.0, gpus=4), KNOWN).seconds == pytest.approx(HOUR / 3.7)


def test_without_a_gpu_the_processors_do_it() -> None:
    either = Workload(Resources(), GpuNeed.OPTIONAL, ComputeTime(HOUR, "T4"))
    assert estimate(either, offer("local/here/pc", 0.0, ""), KNOWN).seconds == pytest.approx(HOUR / 0.08)


def test_nobody_knows_how_long_means_nobody_knows_how_much() -> None:
    found = estimate(work(None), T4, KNOWN)
    assert (found.eta, found.total, found.confidence) == (None, None, Confidence.LOW)


def test_data_takes_time_and_what_leaves_costs() -> None:
    heavy = work(2.0, dataset_bytes=100 * GB, output_bytes=10 * GB)
    found = estimate(heavy, at(T4, egress_per_gb=90_000, storage_per_gb_month=23_000), KNOWN)
    assert found.transfer == 1100.0
    assert found.egress == 900_000
    assert found.storage == math.ceil(110 * 23_000 * (2 * HOUR + 1400) / MONTH)
    assert found.total == found.machine + found.egress + found.storage  # type: ignore[operator]


def test_spot_without_interruptions_loses_nothing() -> None:
    assert estimate(work(interruptible=True), spot(T4, 0.3), KNOWN).lost == 0


def test_on_demand_machines_are_not_taken_back() -> None:
    assert estimate(work(), taken_back(T4, 5.0), KNOWN).lost == 0


def test_checkpoints_bound_what_is_lost() -> None:
    long = {"hours": 20.0, "interruptible": True}
    taken = taken_back(spot(T4, 0.3), 0.2)
    with_them = estimate(work(checkpoint_seconds=1800.0, **long), taken, KNOWN)  # type: ignore[arg-type]
    without = estimate(work(**long), taken, KNOWN)  # type: ignore[arg-type]
    assert with_them.lost is not None
    assert without.lost is not None
    assert with_them.lost < 0.1 * 20 * HOUR < 5 * 20 * HOUR < without.lost


def test_what_is_lost_is_near_half_an_interval_and_a_start_each_time() -> None:
    """For rare interruptions, which is how people reckon it."""
    rare = taken_back(spot(T4, 0.3), 0.01)
    found = estimate(work(50.0, interruptible=True, checkpoint_seconds=600.0), rare, KNOWN)
    assert found.lost == pytest.approx(0.5 * (300 + 300), rel=0.02)


def test_what_never_ends_is_still_a_number() -> None:
    hopeless = taken_back(spot(T4, 0.3), 100.0)
    found = estimate(work(1000.0, interruptible=True), hopeless, KNOWN)
    assert found.lost == LONGEST
    assert found.total is not None


@given(
    hours=st.floats(0.01, 100),
    more=st.floats(0, 100),
    interruptions=st.floats(0, 2),
    interval=st.none() | st.floats(60, 7200),
)
def test_more_work_is_never_cheaper_or_sooner(
    hours: float, more: float, interruptions: float, interval: float | None
) -> None:
    place = at(taken_back(spot(T4, 0.5), interruptions), egress_per_gb=1000)
    small, large = (
        estimate(work(h, interruptible=True, checkpoint_seconds=interval), place, KNOWN) for h in (hours, hours + more)
    )
    assert small.total is not None
    assert large.total is not None
    assert small.eta is not None
    assert large.eta is not None
    assert small.total <= large.total
    assert small.eta <= large.eta * (1 + 1e-9)


def test_memory_is_not_money() -> None:
    assert estimate(work(memory=1), T4, KNOWN) == estimate(work(memory=15), T4, KNOWN)
    assert GiB != GB
