"""Processors: when there is time for what need not be done now."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from crucible.analysis.processors import ENOUGH, WINDOW, Processors, spent_idle


@dataclass
class Computer:
    """Time passes on it as it is told, and its processors idle as told."""

    time: float = 100.0
    idle: float = 5_000.0

    def pass_(self, seconds: float, idle: float) -> None:
        self.time += seconds
        self.idle += idle * seconds

    def processors(self) -> Processors:
        return Processors(lambda: self.idle, lambda: self.time)


def test_at_first_one_is_free() -> None:
    assert Computer().processors().free()


@pytest.mark.parametrize(("idle", "free"), [(0.0, False), (ENOUGH / 2, False), (ENOUGH * 2, True), (2.0, True)])
def test_what_they_did_of_late_decides(idle: float, free: bool) -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(WINDOW * 2, idle)
    assert processors.free() is free


def test_work_that_is_done_counts_no_more() -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(60.0, 0.0)
    assert not processors.free()
    computer.pass_(WINDOW, 1.0)
    assert processors.free()


def test_within_a_moment_the_answer_stays() -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(WINDOW, 0.0)
    assert not processors.free()
    computer.pass_(WINDOW / 2, 2.0)
    assert not processors.free()


def test_this_computer_counts_upwards() -> None:
    first = spent_idle()
    assert 0.0 < first <= spent_idle()
