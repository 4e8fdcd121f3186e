from __future__ import annotations

import time

import pytest

from crucible.control.db import clock
from crucible.control.db.clock import TRUSTED_SECONDS, ServerClock


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """This process's own steady clock, as its only element."""
    at = [100.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: at[0])
    return at


def test_without_a_word_from_the_server_it_is_this_computers() -> None:
    assert abs(ServerClock().now() - time.time()) < 60


def test_it_goes_on_from_what_the_server_said(steady: list[float]) -> None:
    ours = ServerClock()
    ours.record_server_time(5_000.0)
    steady[0] += 7
    assert ours.now() == 5_007.0


def test_a_word_that_came_late_does_not_turn_it_back(steady: list[float]) -> None:
    ours = ServerClock()
    ours.record_server_time(5_000.0)
    steady[0] += 10
    ours.record_server_time(5_008.0)
    assert ours.now() == 5_010.0
    ours.record_server_time(5_011.0)
    assert ours.now() == 5_011.0, "one that came quicker counts"


def test_a_server_whose_clock_was_set_back_is_followed_after_a_while(steady: list[float]) -> None:
    ours = ServerClock()
    ours.record_server_time(5_000.0)
    steady[0] += TRUSTED_SECONDS + 1
    ours.record_server_time(5_001.0)
    assert ours.now() == 5_001.0
