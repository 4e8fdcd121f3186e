"""Many who ask or wait for the same: one does it for all, and nobody gets less than by himself."""

from __future__ import annotations

import asyncio

import pytest

from crucible.server.streams.coalesce import Coalescer


class HeldRead:
    """Answers with how often it was asked, when it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        mine = self.asked
        await self.go.wait()
        return mine


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_in_the_same_turn_shares_an_answer() -> None:
    coalescer, question = Coalescer(), HeldRead()
    question.go.set()
    assert await asyncio.gather(*(coalescer.share_read("a", question) for _ in range(1000))) == [1] * 1000


async def test_other_questions_are_asked_by_themselves() -> None:
    coalescer, question = Coalescer(), HeldRead()
    question.go.set()
    assert await asyncio.gather(coalescer.share_read("a", question), coalescer.share_read("b", question)) == [1, 2]


async def test_an_answer_that_is_under_way_is_not_joined() -> None:
    coalescer, question = Coalescer(), HeldRead()
    first = asyncio.ensure_future(coalescer.share_read("a", question))
    await turns()
    later = asyncio.ensure_future(coalescer.share_read("a", question))
    await turns()
    question.go.set()
    assert (await first, await later) == (1, 2)


async def test_one_who_leaves_takes_the_answer_from_nobody() -> None:
    coalescer, question = Coalescer(), HeldRead()
    first, second = (asyncio.ensure_future(coalescer.share_read("a", question)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    question.go.set()
    assert await second == 1
    assert first.cancelled()


async def test_what_went_wrong_is_told_to_all_and_forgotten() -> None:
    coalescer = Coalescer()

    async def broken() -> int:
        raise ValueError("no")

    told = await asyncio.gather(*(coalescer.share_read("a", broken) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in told] == ["no"] * 3
    question = HeldRead()
    question.go.set()
    assert await coalescer.share_read("a", question) == 1


async def test_who_waits_for_the_same_joins_at_any_time_and_gets_the_same() -> None:
    coalescer, question = Coalescer(), HeldRead()
    first = asyncio.ensure_future(coalescer.share_wait("a", question))
    await turns()
    others = [asyncio.ensure_future(coalescer.share_wait("a", question)) for _ in range(3)]
    await turns()
    question.go.set()
    assert await asyncio.gather(first, *others) == [1] * 4


async def test_what_has_come_is_not_waited_for_again() -> None:
    coalescer, question = Coalescer(), HeldRead()
    question.go.set()
    assert [await coalescer.share_wait("a", question), await coalescer.share_wait("a", question)] == [1, 2]


async def test_one_who_stops_waiting_leaves_the_others_waiting() -> None:
    coalescer, question = Coalescer(), HeldRead()
    first, second = (asyncio.ensure_future(coalescer.share_wait("a", question)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    question.go.set()
    assert await second == 1
    assert first.cancelled()


@pytest.mark.parametrize("later", range(4))
async def test_what_nobody_waits_for_is_given_up_and_begun_anew(later: int) -> None:
    coalescer = Coalescer()
    begun, given_up = [], []

    async def never() -> int:
        begun.append(True)
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(True)
        return 0

    only = asyncio.ensure_future(coalescer.share_wait("a", never))
    await turns(later)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    question = HeldRead()
    question.go.set()
    assert await coalescer.share_wait("a", question) == 1
    assert given_up == begun


async def test_what_went_wrong_while_waiting_is_told_to_all_and_forgotten() -> None:
    coalescer = Coalescer()

    async def broken() -> int:
        raise ValueError("no")

    told = await asyncio.gather(*(coalescer.share_wait("a", broken) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in told] == ["no"] * 3
    question = HeldRead()
    question.go.set()
    assert await coalescer.share_wait("a", question) == 1
