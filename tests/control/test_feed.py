from __future__ import annotations

import asyncio

from crucible.control.feed import Feed, Hint


async def test_a_watcher_hears_of_its_job_alone() -> None:
    feed = Feed()
    with feed.watch("a") as mine, feed.watch("b") as other, feed.watch(None) as everything:
        feed.publish("a", [Hint.LOG])
        assert await mine.changed(0) == {Hint.LOG}
        assert await other.changed(0) == set()
        assert await everything.changed(0) == {Hint.LOG}


async def test_hints_gather_while_the_watcher_is_busy() -> None:
    feed = Feed()
    with feed.watch("a") as watch:
        feed.publish("a", [Hint.LOG])
        feed.publish("a", [Hint.EVENT, Hint.LOG])
        assert await watch.changed(1) == {Hint.LOG, Hint.EVENT}
        assert await watch.changed(0) == set(), "each is told once"


async def test_a_waiting_watcher_is_woken_at_once() -> None:
    feed = Feed()
    with feed.watch("a") as watch:
        waiting = asyncio.create_task(watch.changed(60))
        await asyncio.sleep(0)
        feed.publish("a", [Hint.POINTS])
        assert await waiting == {Hint.POINTS}


async def test_several_watchers_of_one_job_all_hear() -> None:
    feed = Feed()
    with feed.watch("a") as one, feed.watch("a") as two:
        feed.publish("a", [Hint.LOG])
        assert await one.changed(0) == await two.changed(0) == {Hint.LOG}


async def test_who_left_is_told_no_more() -> None:
    feed = Feed()
    with feed.watch("a") as gone:
        pass
    with feed.watch("a") as watch:
        feed.publish("a", [Hint.LOG])
        assert await watch.changed(0) == {Hint.LOG}
    assert await gone.changed(0) == set()
    feed.publish("a", [Hint.LOG])
