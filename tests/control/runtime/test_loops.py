from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.control.harness import ControlHarness

from crucible.control.runtime.loops import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, Loop, Loops, retry_delay
from crucible.core.errors import Unreachable

NEVER = 3600.0


async def until(done: Callable[[], bool]) -> None:
    """Turns of the event loop until it is so."""
    for _ in range(1000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


class Rounds:
    """Rounds that end as given, the last one again and again."""

    def __init__(self, *ends: float | Exception) -> None:
        self.ends = list(ends)
        self.count = 0

    async def __call__(self) -> float:
        self.count += 1
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, Exception):
            raise end
        return end


def one(harness: ControlHarness, round: Callable[[], Awaitable[float]]) -> Loops:
    return Loops(harness.ports, [Loop("test", "topic", round)])


async def test_the_first_round_is_at_once_and_the_next_after_its_wait(harness: ControlHarness) -> None:
    rounds = Rounds(0.0, 0.0, NEVER)
    loops = one(harness, rounds)
    loops.start()
    await until(lambda: rounds.count == 3)
    await loops.stop()


async def test_a_wake_up_starts_a_round_sooner(harness: ControlHarness) -> None:
    rounds = Rounds(NEVER)
    loops = one(harness, rounds)
    loops.start()
    await until(lambda: rounds.count == 1)
    harness.ports.wakeups.wake("another topic")
    harness.ports.wakeups.wake("topic")
    await until(lambda: rounds.count == 2)
    await loops.stop()


async def test_a_wake_up_during_a_round_is_not_lost(harness: ControlHarness) -> None:
    rounds = Rounds(NEVER)

    async def wakes_itself() -> float:
        if rounds.count == 0:
            harness.ports.wakeups.wake("topic")
        return await rounds()

    loops = one(harness, wakes_itself)
    loops.start()
    await until(lambda: rounds.count == 2)
    await loops.stop()


@pytest.mark.parametrize("trouble", [Unreachable("No answer."), ZeroDivisionError("a bug")])
async def test_a_broken_round_does_not_end_the_loop(harness: ControlHarness, trouble: Exception) -> None:
    rounds = Rounds(trouble, NEVER)
    loops = one(harness, rounds)
    loops.start()
    await until(lambda: rounds.count == 1)
    harness.ports.wakeups.wake("topic")
    await until(lambda: rounds.count == 2)
    await loops.stop()


class RecordingRounds(Rounds):
    """Notes how long its loop would wait after each round; only the longest wait is one."""

    def __init__(self, harness: ControlHarness, *ends: float | Exception) -> None:
        super().__init__(*ends)
        self.asked: list[float] = []
        self._wakeups = harness.ports.wakeups

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        listening = self._wakeups.listening

        @contextmanager
        def noting(topic: str) -> Iterator[object]:
            with listening(topic) as listener:
                yield RecordingListener(listener, self.asked)

        patch.setattr(self._wakeups, "listening", noting)


class RecordingListener:
    def __init__(self, listener: Any, asked: list[float]) -> None:
        self._listener, self._asked = listener, asked

    async def wait(self, seconds: float) -> None:
        self._asked.append(seconds)
        await self._listener.wait(0.0 if seconds < NEVER else seconds)


async def test_a_loop_in_trouble_asks_less_and_less_often(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [Unreachable("No answer.")] * 6
    rounds = RecordingRounds(harness, *away, 0.5, Unreachable("No answer."), NEVER)
    rounds.watch(monkeypatch)
    loops = one(harness, rounds)
    loops.start()
    await until(lambda: len(rounds.asked) == 9)
    await loops.stop()
    assert rounds.asked == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 0.5, 1.0, NEVER]


def test_however_long_the_trouble_the_wait_is_bounded() -> None:
    assert retry_delay(1) == FIRST_RETRY_SECONDS
    assert retry_delay(10**9) == LONGEST_RETRY_SECONDS


async def test_one_loops_trouble_is_not_anothers(harness: ControlHarness) -> None:
    broken, well = Rounds(ZeroDivisionError("a bug")), Rounds(0.0, 0.0, NEVER)
    loops = Loops(harness.ports, [Loop("broken", "a", broken), Loop("well", "b", well)])
    loops.start()
    await until(lambda: well.count == 3)
    await loops.stop()


async def test_a_stop_ends_a_round_that_hangs(harness: ControlHarness) -> None:
    begun = asyncio.Event()

    async def hangs() -> float:
        begun.set()
        await asyncio.Event().wait()
        return NEVER

    loops = one(harness, hangs)
    loops.start()
    await begun.wait()
    await asyncio.wait_for(loops.stop(), 5)
    await loops.stop()
