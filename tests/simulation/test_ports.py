from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible.control.reconcile.crashpoints import crashpoint, disarm
from crucible.core.errors import TimedOut
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.virtual_loop import VirtualLoop, virtual_loop
from crucible.simulation.faults.world.ports import DelayedCalls, OrderedWakeups, ProcessDb, WatchedDb
from crucible.simulation.faults.world.process import NAMED_WEIGHT, WRITE_WEIGHT, Crash, SimulatedProcess, arm_all
from crucible.simulation.faults.world.store import MemoryStore
from crucible.storage import HashMismatch, StoreFull


def calm() -> FaultRates:
    faults = FaultRates(RandomStream(1, "weather"), lambda: 0.0)
    faults.end()
    return faults


def play(scene: Callable[[], object]) -> None:
    VirtualLoop().run_until_complete(scene())  # type: ignore[arg-type]


def test_a_process_dies_at_a_border_and_all_its_tasks_with_it() -> None:
    told: list[str] = []

    async def scene() -> None:
        process = SimulatedProcess("p", 2, told.append)
        process.border("one")
        process.border("two")
        sleeper = process.start(asyncio.sleep(100))
        with pytest.raises(Crash):
            process.border("three")
        await asyncio.sleep(1)
        assert sleeper.cancelled()
        with pytest.raises(Crash):
            process.border("four")

    play(scene)
    assert told == ["dies at three"]


def test_named_crash_points_are_borders_of_the_process_that_reaches_them() -> None:
    told: list[str] = []

    async def work() -> None:
        crashpoint("launch.before_call")

    async def scene() -> None:
        arm_all()
        process = SimulatedProcess("p", NAMED_WEIGHT - 1, told.append)
        task = process.start(work())
        await asyncio.wait({task})
        assert isinstance(task.exception(), Crash)

    try:
        play(scene)
    finally:
        disarm()
    assert told == ["dies at launch.before_call"]


def test_a_commit_outlives_the_process_that_made_it() -> None:
    async def scene() -> None:
        db = WatchedDb()
        await db.write(lambda conn: conn.exec_driver_sql("CREATE TABLE things (n INTEGER)").rowcount)
        process = SimulatedProcess("p", 8, lambda what: None)
        mine = ProcessDb(db, process, calm(), lambda: None)
        with pytest.raises(Crash):
            await mine.write(lambda conn: conn.exec_driver_sql("INSERT INTO things VALUES (1)").rowcount)
        assert db.query("SELECT n FROM things") == [(1,)]

    play(scene)


def test_a_call_that_is_too_late_takes_effect_all_the_same() -> None:
    done: list[str] = []

    async def scene() -> None:
        calls = DelayedCalls(SimulatedProcess("p", None, done.append), calm(), RandomStream(1, "calls"))
        with pytest.raises(TimedOut):
            await calls.run("cloud", lambda: done.append("made"), 0.001)
        await asyncio.sleep(60)

    play(scene)
    assert done == ["made"]


def test_wakeups_come_in_the_same_order_every_time() -> None:
    woken: list[str] = []

    async def scene() -> None:
        wakeups = OrderedWakeups()

        async def waits(topic: str) -> None:
            with wakeups.listening(topic) as listener:
                if await listener.wait(10):
                    woken.append(topic)

        tasks = [asyncio.ensure_future(waits(topic)) for topic in ("c", "a", "b", "never")]
        await asyncio.sleep(1)
        for topic in ("b", "c", "a"):
            wakeups.wake(topic)
        await asyncio.wait(tasks)

    play(scene)
    assert woken == ["a", "b", "c"]


def test_a_full_store_takes_nothing(tmp_path: Path) -> None:
    now = [0.0]
    faults = FaultRates(RandomStream(1, "weather"), lambda: now[0])
    store = MemoryStore(faults)
    faults.storm("store", 10)
    with pytest.raises(StoreFull):
        store.put("key", b"data")
    assert store.free_bytes() == 0
    faults.end()
    now[0] = 11.0
    file = tmp_path / "file"
    file.write_bytes(b"data")
    with pytest.raises(HashMismatch):
        store.adopt("key", file, "0" * 64)
    assert list(store.list("")) == []
    assert store.put("a/b", b"data").size == 4
    assert list(store.list("a")) == [("a/b", 4)]


def test_dice_of_one_name_fall_the_same_way() -> None:
    assert [RandomStream(1, "a").bits(64) for _ in range(2)] == [RandomStream(1, "a").bits(64)] * 2
    assert RandomStream(1, "a").bits(64) != RandomStream(1, "b").bits(64)


def test_a_process_stands_still_at_a_border_and_goes_on_from_there() -> None:
    told: list[tuple[str, float]] = []

    async def scene() -> None:
        loop = virtual_loop()
        db = WatchedDb()
        process = SimulatedProcess("p", None, lambda what: None)
        mine = ProcessDb(db, process, calm(), lambda: None)
        process.halt, process.on_halt = WRITE_WEIGHT - 1, lambda where: stop(where)

        def stop(where: str) -> None:
            told.append((where, loop.time()))
            loop.freeze([process])

        task = process.start(mine.write(lambda conn: told.append(("wrote", loop.time()))))
        await asyncio.sleep(300)
        assert not task.done()
        loop.thaw([process])
        await task

    play(scene)
    assert told == [("write", 0.0), ("wrote", 300.0)]
