from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.control.runtime.system_ports import LocalWakeups
from crucible.control.telemetry.feed import Feed, Hint


class LinkedWakeups(LocalWakeups):
    """Wake-ups that reach every other process tuned in; `missed` is what a lost connection leaves behind."""

    def __init__(self, *others: LinkedWakeups) -> None:
        super().__init__()
        self.others = list(others)
        for other in others:
            other.others.append(self)
        self._tell: list[tuple[str, Callable[[str | None], None]]] = []

    def wake(self, topic: str) -> None:
        super().wake(topic)
        for other in self.others:
            other.hear(topic)

    def subscribe_remote(self, prefix: str, tell: Callable[[str | None], None]) -> None:
        self._tell.append((prefix, tell))

    def hear(self, topic: str | None) -> None:
        for prefix, tell in self._tell:
            if topic is None or topic.startswith(prefix):
                tell(topic)


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


async def test_a_watcher_hears_what_another_process_published() -> None:
    here = LinkedWakeups()
    feed, elsewhere = Feed(here), Feed(LinkedWakeups(here))
    with feed.watch("a") as mine, feed.watch("b") as other, feed.watch(None) as everything:
        elsewhere.publish("a", [Hint.EVENT, Hint.LOG])
        assert await mine.changed(0) == await everything.changed(0) == {Hint.EVENT, Hint.LOG}
        assert await other.changed(0) == set()


async def test_hints_of_a_newer_process_that_are_not_known_here_are_left_out() -> None:
    radio = LinkedWakeups()
    feed = Feed(radio)
    with feed.watch("a") as watch:
        radio.hear("feed:a:event,smell")
        assert await watch.changed(0) == {Hint.EVENT}


async def test_after_a_gap_everyone_looks_at_everything() -> None:
    radio = LinkedWakeups()
    feed = Feed(radio)
    with feed.watch("a") as one, feed.watch(None) as two:
        radio.hear(None)
        assert await one.changed(0) == await two.changed(0) == set(Hint)
