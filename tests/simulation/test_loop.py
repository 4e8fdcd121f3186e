from __future__ import annotations

import asyncio

import pytest

from crucible.simulation.faults.virtual_loop import Deadlock, VirtualLoop
from crucible.simulation.faults.world.task_group import TaskGroup


def test_time_jumps_to_the_next_timer() -> None:
    async def sleeps() -> list[float]:
        loop, seen = asyncio.get_running_loop(), []
        for seconds in (3600.0, 0.5):
            await asyncio.sleep(seconds)
            seen.append(loop.time())
        return seen

    assert VirtualLoop().run_until_complete(sleeps()) == [3600.0, 3600.5]


def test_timeouts_are_virtual_too() -> None:
    async def waits() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert VirtualLoop().run_until_complete(waits()) == 30.0


def test_waiting_for_nothing_is_told() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        VirtualLoop().run_until_complete(waits())


def test_a_crew_dies_with_all_that_its_tasks_started() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        if name == "first":
            asyncio.get_running_loop().create_task(work("second"))
        await asyncio.sleep(10)
        done.append(name)

    async def scene() -> None:
        group, other = TaskGroup("doomed"), TaskGroup("other")
        group.start(work("first"))
        other.start(work("third"))
        await asyncio.sleep(1)
        group.die()
        await asyncio.sleep(20)

    VirtualLoop().run_until_complete(scene())
    assert done == ["third"]


def test_what_is_frozen_goes_on_in_its_order_once_it_thaws() -> None:
    told: list[tuple[str, float]] = []

    async def ticks(name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(10)
            told.append((name, asyncio.get_running_loop().time()))

    async def scene() -> None:
        sleeper, other = TaskGroup("sleeper"), TaskGroup("other")
        sleeper.start(ticks("asleep"))
        other.start(ticks("awake"))
        await asyncio.sleep(1)
        loop.freeze([sleeper])
        await asyncio.sleep(99)
        loop.thaw([sleeper])
        await asyncio.sleep(50)

    loop = VirtualLoop()
    loop.run_until_complete(scene())
    assert told == [("awake", 10.0), ("awake", 20.0), ("asleep", 100.0), ("asleep", 110.0)]


def test_what_dies_while_it_is_frozen_never_goes_on() -> None:
    told: list[str] = []

    async def work() -> None:
        await asyncio.sleep(10)
        told.append("went on")

    async def scene() -> None:
        sleeper = TaskGroup("sleeper")
        sleeper.start(work())
        await asyncio.sleep(1)
        loop.freeze([sleeper])
        await asyncio.sleep(20)
        sleeper.die()
        loop.thaw([sleeper])
        await asyncio.sleep(20)

    loop = VirtualLoop()
    loop.run_until_complete(scene())
    assert told == []


def test_what_thaws_leaves_others_frozen() -> None:
    told: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        await asyncio.sleep(10)
        told.append((name, asyncio.get_running_loop().time()))

    async def scene() -> None:
        groups = TaskGroup("one"), TaskGroup("other")
        for group in groups:
            group.start(tick(group.name))
        await asyncio.sleep(1)
        loop.freeze(groups)
        await asyncio.sleep(49)
        loop.thaw(groups[:1])
        await asyncio.sleep(50)
        loop.thaw(groups[1:])
        await asyncio.sleep(1)

    loop = VirtualLoop()
    loop.run_until_complete(scene())
    assert told == [("one", 50.0), ("other", 100.0)]
