from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.control.harness import ControlHarness, service
from tests.control.telemetry.test_logs import logged

from crucible.control.runtime.system_ports import ThreadCalls
from crucible.control.telemetry import log_search
from crucible.control.telemetry.grep import Pattern
from crucible.control.telemetry.log_search import LogSearch, Query, read_cursor
from crucible.core.errors import BadInput, NotFound
from crucible.core.people.identity import OWNER
from crucible.core.views.search import SearchedView
from crucible.wire.documents.messages import MessageKind


async def found(
    harness: ControlHarness, job: str, text: str, *, regex: bool = False, case: bool = True, **more: Any
) -> Any:
    return await service(harness).outputs.search_logs(OWNER, job, Query(Pattern(text, regex, case), **more))


async def test_lines_are_found_over_segments_and_in_the_live_tail(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"epoch 1\nloss ", b"nan\nepoch 2\n")
    await harness.agents.put_tail(runner.attempt, 0, 25, b"loss nan again\npart")
    page = await LogSearch(harness.ports, harness.tails).find(job, Query(Pattern("nan")))
    assert [(hit.attempt, hit.line, hit.offset, hit.text) for hit in page.items] == [
        (1, 2, 8, "loss nan"),
        (1, 4, 25, "loss nan again"),
    ]
    assert (page.next, page.complete) == (None, False)
    assert page.searched == SearchedView(lines=4, bytes=44)


async def test_all_attempts_are_searched_in_order(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 0})
    await runner.log(0, 0, b"a\nhit\n")
    await runner.end(code=1)
    await harness.place()
    second = await harness.runner(job)
    assert second.attempt != runner.attempt
    await second.say(MessageKind.STARTED, pid=78)
    await second.log(0, 0, b"hit\n")
    assert [(hit.attempt, hit.line) for hit in (await found(harness, job, "hit")).items] == [(1, 2), (2, 1)]
    assert [hit.attempt for hit in (await found(harness, job, "hit", attempt=2)).items] == [2]
    first = await found(harness, job, "hit", limit=1)
    rest = await found(harness, job, "hit", limit=1, cursor=first.next)
    assert [hit.attempt for hit in (*first.items, *rest.items)] == [1, 2]
    with pytest.raises(NotFound, match="no attempt 3"):
        await found(harness, job, "hit", attempt=3)


async def test_pages_join_without_gap_or_double_and_keep_their_context(harness: ControlHarness) -> None:
    lines = [b"line %d%s\n" % (n, b" hit" if n % 3 == 0 else b"") for n in range(1, 31)]
    job, runner = await logged(harness, b"".join(lines[:10]), b"".join(lines[10:]))
    await runner.end()
    seen, cursor = [], None
    while True:
        page = await found(harness, job, "hit", limit=4, context=1, cursor=cursor)
        seen += page.items
        cursor = page.next
        if cursor is None:
            break
    assert page.complete
    assert [hit.line for hit in seen] == list(range(3, 31, 3))
    assert [hit.before for hit in seen] == [(f"line {n - 1}",) for n in range(3, 31, 3)]
    assert [hit.after for hit in seen] == [(f"line {n + 1}",) for n in range(3, 30, 3)] + [()]


async def test_a_job_that_has_not_run_has_nothing_to_find(harness: ControlHarness) -> None:
    await harness.submit(cpus=4)
    page = await found(harness, await harness.submit(cpus=4), "x")
    assert (page.items, page.next) == ((), None)


async def test_the_answer_comes_after_a_while_with_what_there_is(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "SECONDS", -1.0)
    monkeypatch.setattr(log_search, "BLOCK", 8)
    job, _ = await logged(harness, b"hit 1\n", b"more\nhit 2\n", b"hit 3\n")
    seen, cursor, pages = [], None, 0
    while True:
        page = await found(harness, job, "hit", cursor=cursor)
        seen += [hit.line for hit in page.items]
        cursor, pages = page.next, pages + 1
        if cursor is None:
            break
    assert seen == [1, 3, 4]
    assert pages > 1


async def test_who_goes_away_ends_the_search(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread stops at the next block, long before the end."""
    monkeypatch.setattr(log_search, "BLOCK", 16)
    job, runner = await harness.running()
    await runner.log(0, 0, b"x" * 15 + b"\n")
    asked = asyncio.Event()
    loop, reads = asyncio.get_running_loop(), 0

    class Endless(LogSearch):
        def _read_blocks(self, output: Any) -> Any:
            nonlocal reads
            first = next(iter(super()._read_blocks(output)))
            while True:
                reads += 1
                loop.call_soon_threadsafe(asked.set)
                yield first

    calls = ThreadCalls()
    endless = Endless(harness.ports.__class__(**{**vars(harness.ports), "calls": calls}), harness.tails)
    task = asyncio.create_task(endless.find(job, Query(Pattern("never"))))
    await asyncio.wait_for(asked.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pool = calls._lanes["search"]
    await asyncio.wait_for(asyncio.to_thread(pool.shutdown, True), 5)
    assert reads > 0


@pytest.mark.parametrize("cursor", ["", "a", "%%%", "äöü", "bDE6MTox", "bDE6eDp5Ono", "bDE6LTE6MTox", "=" * 7])
async def test_a_strange_cursor_is_refused(harness: ControlHarness, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor is not valid"):
        read_cursor(cursor)


async def test_a_cursor_beyond_the_end_finds_nothing(harness: ControlHarness) -> None:
    job, _ = await logged(harness, b"hit\n")
    far = log_search.write_cursor(log_search._Position(1, 10, 10_000))
    assert (await found(harness, job, "hit", cursor=far)).items == ()
    other = log_search.write_cursor(log_search._Position(9, 1, 0))
    assert (await found(harness, job, "hit", cursor=other)).items == ()


async def test_a_million_lines_are_searched_in_three_seconds(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    line, start = b"epoch %7d step 100 loss 0.12345 accuracy 0.98765\n", 0
    for n in range(20):
        text = b"".join([line % (n * 50_000 + m) for m in range(50_000)])
        await runner.log(n, start, text)
        start += len(text)
    for text, regex, hits in (("epoch  999999 ", False, 1), ("nan", False, 0), (r"loss\s+nan|epoch +77777 ", True, 1)):
        began = time.monotonic()
        page = await found(harness, job, text, regex=regex, case=regex)
        assert time.monotonic() - began < 3
        assert len(page.items) == hits
        assert page.searched.lines == 1_000_000
