from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from crucible.client.transport.async_iterator import MAX_PENDING, Stop, iterate_in_thread


def ends_well(stop: Stop) -> Iterator[int]:
    yield from range(3)


async def test_what_the_thread_yields_comes_in_order() -> None:
    assert [item async for item in iterate_in_thread(ends_well)] == [0, 1, 2]


async def test_what_it_raises_is_raised_where_it_is_read() -> None:
    def fails(stop: Stop) -> Iterator[int]:
        yield 1
        raise LookupError("lost")

    items = iterate_in_thread(fails)
    assert await anext(items) == 1
    with pytest.raises(LookupError, match="lost"):
        await anext(items)


async def test_who_stops_reading_stops_the_thread() -> None:
    ended = threading.Event()

    def endless(stop: Stop) -> Iterator[int]:
        try:
            while not stop():
                yield 1
        finally:
            ended.set()

    async with aclosing(iterate_in_thread(endless)) as items:
        async for _ in items:
            break
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_reader_who_is_behind_holds_the_thread_back() -> None:
    made = 0

    def many(stop: Stop) -> Iterator[int]:
        nonlocal made
        while made < 3 * MAX_PENDING:
            made += 1
            yield made

    seen = 0
    async for item in iterate_in_thread(many):
        seen += 1
        assert item == seen
        assert made <= seen + 2 * MAX_PENDING + 1
    assert seen == 3 * MAX_PENDING


async def test_the_newest_replaces_those_before_it() -> None:
    read, filled = threading.Event(), threading.Event()

    def counts(stop: Stop) -> Iterator[int]:
        yield 0
        read.wait(10)
        yield from (1, 2, 3, 14, 5, 6)
        filled.set()

    found: list[int] = []
    async for item in iterate_in_thread(counts, replaces=lambda old, new: old < 10 and new < 10):
        found.append(item)
        if item == 0:
            read.set()
            filled.wait(10)
    assert found == [0, 3, 14, 6]
