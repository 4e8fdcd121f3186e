"""Processors: when there is time for what need not be done now."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
import pytest

from crucible.analysis.processors import ENOUGH, LONG_AGO, WINDOW, Processors, spent_idle


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


def test_at_first_nobody_knows() -> None:
    assert not Computer().processors().free()


@pytest.mark.parametrize(("idle", "free"), [(0.0, False), (ENOUGH / 2, False), (ENOUGH * 2, True), (2.0, True)])
def test_what_they_did_of_late_decides(idle: float, free: bool) -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(WINDOW * 2, idle)
    assert processors.free() is free


def test_work_that_is_done_counts_no_more() -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(WINDOW, 0.0)
    assert not processors.free()
    computer.pass_(WINDOW, 1.0)
    assert processors.free()


def test_what_was_long_ago_says_nothing() -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(LONG_AGO + 1, 2.0)
    assert not processors.free()
    computer.pass_(WINDOW, 2.0)
    assert processors.free()


def test_within_a_moment_the_answer_stays() -> None:
    computer = Computer()
    processors = computer.processors()
    computer.pass_(WINDOW, 0.0)
    assert not processors.free()
    computer.pass_(WINDOW / 2, 2.0)
    assert not processors.free()


def test_this_computer_tells_of_the_processors_that_we_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, all_of_us = os.sched_getaffinity(0), spent_idle()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {min(ours)})
    assert spent_idle() > 0.0
    assert spent_idle() < all_of_us or len(ours) == 1


def test_where_nobody_tells_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def untold(percpu: bool) -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", untold)
    computer = Computer()
    processors = Processors(clock=lambda: computer.time)
    computer.pass_(WINDOW, 0.0)
    assert not processors.free()
