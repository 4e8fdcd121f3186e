from __future__ import annotations

import asyncio
import threading
import time

import pytest
import structlog

from crucible.control.runtime.ports import CallBroke
from crucible.control.runtime.system_ports import LocalWakeups, SystemClock, SystemIds, SystemRandom, ThreadCalls
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.ids import Prefix, is_id


async def test_the_clock_is_this_computers() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    await clock.sleep(0)


@pytest.mark.parametrize("jump", [7200.0, -7200.0, 864_000.0])
def test_who_sets_the_computers_clock_does_not_set_ours(jump: float) -> None:
    wall, since_boot = [1_000_000.0], [50.0]
    clock = SystemClock(lambda: wall[0], lambda: since_boot[0])
    assert clock.now() == 1_000_000.0
    wall[0] += jump
    since_boot[0] += 5.0
    assert clock.now() == 1_000_005.0


def test_that_the_clock_was_set_is_told_once() -> None:
    wall, since_boot = [1_000_000.0], [50.0]
    clock = SystemClock(lambda: wall[0], lambda: since_boot[0])
    with structlog.testing.capture_logs() as told:
        for jump in (0.5, 7200.0, 0.0, 0.0):
            wall[0] += jump
            clock.now()
    assert [(line["event"], line["seconds"]) for line in told] == [("the computer's clock was set", 7200)]


def test_ids_are_new_valid_and_rise() -> None:
    ids = SystemIds()
    made = [ids.new(Prefix.JOB) for _ in range(1000)]
    assert all(map(is_id, made))
    assert made == sorted(set(made)), "the queue is in the order of ids, within a millisecond too"


def test_random_stays_within() -> None:
    assert 0.8 <= SystemRandom().uniform(0.8, 1.2) <= 1.2


async def test_work_runs_beside_the_event_loop() -> None:
    calls = ThreadCalls()
    assert await calls.run("a", threading.get_ident, 5) != threading.get_ident()
    await calls.close()


async def test_whatever_work_raises_can_be_expected_by_its_caller() -> None:
    calls = ThreadCalls()
    with pytest.raises(CallBroke, match="lane broke with ZeroDivisionError") as broke:
        await calls.run("lane", lambda: 1 // 0, 5)
    assert isinstance(broke.value.__cause__, ZeroDivisionError)
    with pytest.raises(Unreachable):
        await calls.run("lane", _unreachable, 5)
    await calls.close()


def _unreachable() -> None:
    raise Unreachable("No answer.")


async def test_a_lane_that_hangs_times_out_and_fills_only_itself() -> None:
    calls, gate = ThreadCalls(threads=1), threading.Event()
    try:
        with pytest.raises(TimedOut, match="hanging"):
            await calls.run("hanging", lambda: gate.wait(30), 0.01)
        with pytest.raises(TimedOut):
            await calls.run("hanging", lambda: None, 0.01)
        assert await calls.run("well", lambda: "done", 5) == "done"
    finally:
        gate.set()
        await calls.close()


async def test_a_wake_up_reaches_all_who_listen_to_it() -> None:
    wakeups = LocalWakeups()
    with wakeups.listening("a") as one, wakeups.listening("a") as two, wakeups.listening("b") as other:
        wakeups.wake("a")
        assert await one.wait(1)
        assert await two.wait(1)
        assert not await other.wait(0)
        assert not await one.wait(0), "one wake-up, one round"
    wakeups.wake("a")


async def test_a_listener_that_waits_is_woken() -> None:
    wakeups = LocalWakeups()
    with wakeups.listening("a") as listener:
        waiting = asyncio.create_task(listener.wait(30))
        await asyncio.sleep(0)
        wakeups.wake("a")
        assert await asyncio.wait_for(waiting, 5)
