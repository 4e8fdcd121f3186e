from __future__ import annotations

import pytest
from tests.control.harness import ControlHarness, FakeRunner, service

from crucible.core.errors import NotFound
from crucible.core.people.identity import OWNER
from crucible.core.views.records import LogPage
from crucible.storage import StorageError
from crucible.wire.documents.messages import MessageKind


async def page(
    harness: ControlHarness,
    job: str,
    offset: int = 0,
    limit: int = 10**6,
    since: float | None = None,
    attempt: int | None = None,
) -> LogPage:
    return await harness.logs.page(job, attempt, offset, limit, since)


async def logged(harness: ControlHarness, *texts: bytes) -> tuple[str, FakeRunner]:
    """A running job with one stored segment per text, ten seconds apart."""
    job, runner = await harness.running()
    start = 0
    for n, text in enumerate(texts):
        await runner.log(n, start, text)
        start += len(text)
        harness.clock.move(10)
    return job, runner


async def test_a_job_that_has_not_run_has_an_empty_log(harness: ControlHarness) -> None:
    await harness.submit(cpus=4)
    waiting = await harness.submit(cpus=4)
    assert await page(harness, waiting) == LogPage(attempt=0, attempts=0, start=0, next=0, complete=False, data=b"")
    await service(harness).jobs.cancel(OWNER, waiting)
    assert await page(harness, waiting) == LogPage(attempt=0, attempts=0, start=0, next=0, complete=True, data=b"")


async def test_the_whole_log_over_its_segments(harness: ControlHarness) -> None:
    job, _ = await logged(harness, b"one\n", b"two\n", b"three\n")
    assert await page(harness, job) == LogPage(
        attempt=1, attempts=1, start=0, next=14, complete=False, data=b"one\ntwo\nthree\n"
    )


async def test_pages_by_offset_join_to_the_whole(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n", b"two\n", b"three\n")
    await runner.end()
    read, offset, pages = b"", 0, 0
    while True:
        found = await page(harness, job, offset, limit=5)
        assert found.start == offset
        read, offset, pages = read + found.data, found.next, pages + 1
        if found.complete:
            break
    assert read == b"one\ntwo\nthree\n"
    assert pages == 3


@pytest.mark.parametrize(("offset", "data"), [(-6, b"three\n"), (-9, b"wo\nthree\n"), (-100, b"one\ntwo\nthree\n")])
async def test_a_negative_offset_counts_from_the_end(harness: ControlHarness, offset: int, data: bytes) -> None:
    job, _ = await logged(harness, b"one\n", b"two\n", b"three\n")
    found = await page(harness, job, offset)
    assert (found.data, found.next) == (data, 14)


async def test_since_begins_with_the_first_segment_stored_then(harness: ControlHarness) -> None:
    job, _ = await logged(harness, b"one\n", b"two\n", b"three\n")
    now = harness.clock.now()
    assert (await page(harness, job, since=now - 25)).data == b"two\nthree\n"
    assert (await page(harness, job, since=now - 1000)).data == b"one\ntwo\nthree\n"
    nothing = await page(harness, job, since=now)
    assert (nothing.start, nothing.data) == (14, b"")
    assert (await page(harness, job, offset=8, since=now - 1000)).data == b"three\n"


async def test_the_tail_goes_on_where_the_stored_ends(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    await harness.agents.put_tail(runner.attempt, 0, 4, b"two\nthr")
    found = await page(harness, job)
    assert (found.data, found.next, found.complete) == (b"one\ntwo\nthr", 11, False)
    assert (await page(harness, job, offset=6)).data == b"o\nthr"
    assert (await page(harness, job, offset=2, limit=4)).data == b"e\ntw"
    assert (await page(harness, job, offset=100)).data == b""


async def test_from_the_end_means_from_the_end_of_the_tail(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    await harness.agents.put_tail(runner.attempt, 0, 4, b"two\nthr")
    assert (await page(harness, job, offset=-3)).data == b"thr"
    assert (await page(harness, job, offset=-9)).data == b"e\ntwo\nthr"


async def test_a_tail_that_does_not_join_on_is_not_shown(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    harness.tails.forget(runner.attempt)
    await harness.agents.put_tail(runner.attempt, 0, 50, b"much later")
    assert (await page(harness, job)).data == b"one\n"
    assert (await page(harness, job, offset=-2)).data == b"e\n"


async def test_the_tail_of_other_ranks_is_not_shown(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    await harness.add_rank(runner.attempt, 1)
    await harness.agents.put_tail(runner.attempt, 1, 4, b"two\n")
    assert (await page(harness, job)).data == b"one\n"


async def test_of_an_ended_attempt_only_the_stored_counts(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    await harness.agents.put_tail(runner.attempt, 0, 4, b"never stored")
    await runner.end()
    assert await page(harness, job) == LogPage(attempt=1, attempts=1, start=0, next=4, complete=True, data=b"one\n")
    assert (await page(harness, job, offset=-2)).data == b"e\n"


async def test_complete_only_at_the_end_of_an_ended_attempt(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n", b"two\n")
    assert not (await page(harness, job)).complete
    await runner.end()
    assert not (await page(harness, job, limit=4)).complete
    assert (await page(harness, job, offset=4)).complete
    assert (await page(harness, job, offset=8)).complete


async def test_each_attempt_has_its_own_log(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 0})
    await runner.log(0, 0, b"first\n")
    await runner.end(code=1)
    await harness.place()
    again = await harness.runner(job)
    await again.log(0, 0, b"second\n")
    assert await page(harness, job) == LogPage(attempt=2, attempts=2, start=0, next=7, complete=False, data=b"second\n")
    assert await page(harness, job, attempt=1) == LogPage(
        attempt=1, attempts=2, start=0, next=6, complete=True, data=b"first\n"
    )
    with pytest.raises(NotFound, match="no attempt 3"):
        await page(harness, job, attempt=3)


async def test_a_segment_that_is_not_in_the_store_is_trouble_and_no_silence(harness: ControlHarness) -> None:
    job, runner = await logged(harness, b"one\n")
    await runner.say(MessageKind.LOG, n=1, start=4, end=8, lines=1, sha256="a" * 64)
    with pytest.raises(StorageError):
        await page(harness, job)
    assert (await page(harness, job, limit=4)).data == b"one\n"


async def test_output_that_is_no_text_comes_back_as_it_was(harness: ControlHarness) -> None:
    raw = bytes(range(256))
    job, _ = await logged(harness, raw)
    assert (await page(harness, job)).data == raw


async def test_limits_are_kept_in_bounds(harness: ControlHarness) -> None:
    job, _ = await logged(harness, b"one\n")
    assert (await page(harness, job, limit=0)).data == b"o"
    assert (await page(harness, job, limit=-5)).data == b"o"
    assert (await page(harness, job, limit=10**12)).data == b"one\n"
