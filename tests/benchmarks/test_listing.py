"""`make bench` at a small size: that it fills, serves, asks and tells."""

from __future__ import annotations

import random

import pytest
from benchmarks.listing import command, history

from crucible.control.db import schema as t

pytestmark = pytest.mark.enable_socket


def test_every_filter_is_measured(capfd: pytest.CaptureFixture[str]) -> None:
    command.main(["--jobs", "60", "--times", "1"])
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("60 jobs written")
    told = {line[:20].strip(): line.split() for line in lines[2:]}
    assert set(told) == {*(name for name, _ in command.FILTERS), "submit"}
    assert told["all"][-1] == "50"


def test_what_is_over_its_bound_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    slow, quick = command.Figure("slow", 1.0, 151.0, 50), command.Figure("quick", 1.0, 2.0, 50)
    whole = command.Figure(command.WHOLE_PAGE, 1.0, 500.0, 500)
    command.tell([quick, whole, slow], quick)
    over = [line.split()[0] for line in capfd.readouterr().out.splitlines() if "over 150 ms" in line]
    assert over == ["slow"]


def test_the_same_seed_makes_the_same_history() -> None:
    first, again = (next(history.batches(50, random.Random(7))) for _ in range(2))
    assert first == again
    assert len(first[t.jobs]) == len(first[t.listings]) == 50
