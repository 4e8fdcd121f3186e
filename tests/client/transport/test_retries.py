from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from crucible.client.transport.retries import RetryPolicy


class Trouble(Exception):
    pass


@dataclass
class Clock:
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class FlakyCall:
    """Fails so many times, each taking so long, then says how often it was called."""

    failures: int
    clock: Clock
    seconds: float = 0.0
    calls: int = 0

    def __call__(self) -> int:
        self.calls += 1
        self.clock.now += self.seconds
        if self.calls <= self.failures:
            raise Trouble(self.calls)
        return self.calls


def test_what_works_at_once_is_done_once() -> None:
    clock = Clock()
    assert RetryPolicy(clock=clock).run(FlakyCall(0, clock), lambda _: True) == 1
    assert clock.slept == []


def test_waits_grow_up_to_the_longest() -> None:
    clock = Clock()
    repeats = RetryPolicy(attempts=6, first=1.0, longest=4.0, jitter=0.0, seconds=100.0, clock=clock)
    assert repeats.run(FlakyCall(5, clock), lambda _: True) == 6
    assert clock.slept == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_chance_makes_a_wait_longer_by_the_jitter_at_most() -> None:
    clock = Clock()
    RetryPolicy(attempts=2, first=1.0, jitter=0.5, clock=clock).run(FlakyCall(1, clock), lambda _: True)
    assert 1.0 <= clock.slept[0] <= 1.5


def test_after_the_last_attempt_its_error_is_raised() -> None:
    clock = Clock()
    act = FlakyCall(99, clock)
    with pytest.raises(Trouble, match="3"):
        RetryPolicy(attempts=3, clock=clock).run(act, lambda _: True)
    assert act.calls == 3


def test_time_that_is_over_ends_it_without_another_wait() -> None:
    clock = Clock()
    act = FlakyCall(99, clock, seconds=8.0)
    with pytest.raises(Trouble):
        RetryPolicy(attempts=50, seconds=20.0, clock=clock).run(act, lambda _: True)
    assert act.calls == 3


def test_what_may_not_be_tried_again_is_raised_at_once() -> None:
    clock = Clock()
    asked: list[Exception] = []

    def never(error: Exception) -> bool:
        asked.append(error)
        return False

    with pytest.raises(Trouble, match="1"):
        RetryPolicy(clock=clock).run(FlakyCall(9, clock), never)
    assert [str(error) for error in asked] == ["1"]
    assert clock.slept == []
