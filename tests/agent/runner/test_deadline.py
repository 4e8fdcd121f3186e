from __future__ import annotations

import pytest

from crucible.agent.clock import Deadline
from crucible.agent.runner.deadline import kill_delay, merge_deadlines, suspend_time


@pytest.mark.parametrize(
    ("grace", "left", "expected"),
    [
        (10.0, 120.0, 10.0),
        (100.0, 120.0, 90.0),
        (10.0, 8.0, 6.0),
        (10.0, 4.0, 2.0),
        (10.0, 2.0, 1.0),
        (10.0, 0.0, 1.0),
        (10.0, -5.0, 1.0),
        (0.0, 120.0, 0.0),
    ],
)
def test_a_part_of_what_is_left_is_kept_for_sending(grace: float, left: float, expected: float) -> None:
    assert kill_delay(grace, 1000.0, [None, 1000.0 + left]) == expected


def test_the_nearest_end_counts() -> None:
    assert kill_delay(10.0, 0.0, []) == 10.0
    assert kill_delay(10.0, 0.0, [None, None]) == 10.0
    assert kill_delay(10.0, 0.0, [4.0, 1000.0]) == 2.0


@pytest.mark.parametrize(
    ("total", "grace", "lead"),
    [
        (24 * 3600.0, 10.0, 310.0),
        (3600.0, 10.0, 190.0),
        (300.0, 10.0, 40.0),
        (40.0, 10.0, 20.0),
        (0.0, 10.0, 0.0),
    ],
)
def test_the_lead_before_the_end(total: float, grace: float, lead: float) -> None:
    assert suspend_time(Deadline(5000.0, total), grace) == 5000.0 - lead


def test_a_deadline_told_again_keeps_the_longest_total() -> None:
    assert merge_deadlines(Deadline(100.0, 50.0), Deadline(99.0, 3600.0)) == Deadline(100.0, 3600.0)
    assert merge_deadlines(Deadline(9000.0, 9000.0), Deadline(99.0, 3600.0)) == Deadline(9000.0, 9000.0)
    assert merge_deadlines(None, Deadline(99.0, 3600.0)) is None
    assert merge_deadlines(Deadline(1.0, 1.0), None) == Deadline(1.0, 1.0)
