from __future__ import annotations

import pytest
from tests.control.world import FakeRunner, Rig, service

from crucible.core.errors import NotFound
from crucible.core.people.identity import OWNER
from crucible.core.views.records import LogPage
from crucible.storage import StorageError
from crucible.wire.documents.messages import MessageKind


async def page(
    rig: Rig,
    job: str,
    offset: int = 0,
    limit: int = 10**6,
    since: float | None = None,
    attempt: int | None = None,
) -> LogPage:
    return await rig.logs.page(job, attempt, offset, limit, since)


async def logged(rig: Rig, *texts: bytes) -> tuple[str, FakeRunner]:
    """A running job with one stored segment per text, ten seconds apart."""
    job, runner = await rig.running()
    start = 0
    for n, text in enumerate(texts):
        await runner.log(n, start, text)
        start += len(text)
        rig.clock.move(10)
    return job, runner


async def test_a_job_that_has_not_run_has_an_empty_log(rig: Rig) -> None:
    await rig.submit(cpus=4)
    waiting = await rig.submit(cpus=4)
    assert await page(rig, waiting) == LogPage(attempt=0, attempts=0, start=0, next=0, complete=False, data=b"")
    await service(rig).jobs.cancel(OWNER, waiting)
    assert await page(rig, waiting) == LogPage(attempt=0, attempts=0, start=0, next=0, complete=True, data=b"")


async def test_the_whole_log_over_its_segments(rig: Rig) -> None:
    job, _ = await logged(rig, b"one\n", b"two\n", b"three\n")
    assert await page(rig, job) == LogPage(
        attempt=1, attempts=1, start=0, next=14, complete=False, data=b"one\ntwo\nthree\n"
    )


async def test_pages_by_offset_join_to_the_whole(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n", b"two\n", b"three\n")
    await runner.end()
    read, offset, pages = b"", 0, 0
    while True:
        found = await page(rig, job, offset, limit=5)
        assert found.start == offset
        read, offset, pages = read + found.data, found.next, pages + 1
        if found.complete:
            break
    assert read == b"one\ntwo\nthree\n"
    assert pages == 3


@pytest.mark.parametrize(("offset", "data"), [(-6, b"three\n"), (-9, b"wo\nthree\n"), (-100, b"one\ntwo\nthree\n")])
async def test_a_negative_offset_counts_from_the_end(rig: Rig, offset: int, data: bytes) -> None:
    job, _ = await logged(rig, b"one\n", b"two\n", b"three\n")
    found = await page(rig, job, offset)
    assert (found.data, found.next) == (data, 14)


async def test_since_begins_with_the_first_segment_stored_then(rig: Rig) -> None:
    job, _ = await logged(rig, b"one\n", b"two\n", b"three\n")
    now = rig.clock.now()
    assert (await page(rig, job, since=now - 25)).data == b"two\nthree\n"
    assert (await page(rig, job, since=now - 1000)).data == b"one\ntwo\nthree\n"
    nothing = await page(rig, job, since=now)
    assert (nothing.start, nothing.data) == (14, b"")
    assert (await page(rig, job, offset=8, since=now - 1000)).data == b"three\n"


async def test_the_tail_goes_on_where_the_stored_ends(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    await rig.agents.put_tail(runner.attempt, 0, 4, b"two\nthr")
    found = await page(rig, job)
    assert (found.data, found.next, found.complete) == (b"one\ntwo\nthr", 11, False)
    assert (await page(rig, job, offset=6)).data == b"o\nthr"
    assert (await page(rig, job, offset=2, limit=4)).data == b"e\ntw"
    assert (await page(rig, job, offset=100)).data == b""


async def test_from_the_end_means_from_the_end_of_the_tail(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    await rig.agents.put_tail(runner.attempt, 0, 4, b"two\nthr")
    assert (await page(rig, job, offset=-3)).data == b"thr"
    assert (await page(rig, job, offset=-9)).data == b"e\ntwo\nthr"


async def test_a_tail_that_does_not_join_on_is_not_shown(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    rig.tails.forget(runner.attempt)
    await rig.agents.put_tail(runner.attempt, 0, 50, b"much later")
    assert (await page(rig, job)).data == b"one\n"
    assert (await page(rig, job, offset=-2)).data == b"e\n"


async def test_the_tail_of_other_ranks_is_not_shown(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    await rig.add_rank(runner.attempt, 1)
    await rig.agents.put_tail(runner.attempt, 1, 4, b"two\n")
    assert (await page(rig, job)).data == b"one\n"


async def test_of_an_ended_attempt_only_the_stored_counts(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    await rig.agents.put_tail(runner.attempt, 0, 4, b"never stored")
    await runner.end()
    assert await page(rig, job) == LogPage(attempt=1, attempts=1, start=0, next=4, complete=True, data=b"one\n")
    assert (await page(rig, job, offset=-2)).data == b"e\n"


async def test_complete_only_at_the_end_of_an_ended_attempt(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n", b"two\n")
    assert not (await page(rig, job)).complete
    await runner.end()
    assert not (await page(rig, job, limit=4)).complete
    assert (await page(rig, job, offset=4)).complete
    assert (await page(rig, job, offset=8)).complete


async def test_each_attempt_has_its_own_log(rig: Rig) -> None:
    job, runner = await rig.running(retries={"user": 1, "wait_seconds": 0})
    await runner.log(0, 0, b"first\n")
    await runner.end(code=1)
    await rig.place()
    again = await rig.runner(job)
    await again.log(0, 0, b"second\n")
    assert await page(rig, job) == LogPage(attempt=2, attempts=2, start=0, next=7, complete=False, data=b"second\n")
    assert await page(rig, job, attempt=1) == LogPage(
        attempt=1, attempts=2, start=0, next=6, complete=True, data=b"first\n"
    )
    with pytest.raises(NotFound, match="no attempt 3"):
        await page(rig, job, attempt=3)


async def test_a_segment_that_is_not_in_the_store_is_trouble_and_no_silence(rig: Rig) -> None:
    job, runner = await logged(rig, b"one\n")
    await runner.say(MessageKind.LOG, n=1, start=4, end=8, lines=1, sha256="a" * 64)
    with pytest.raises(StorageError):
        await page(rig, job)
    assert (await page(rig, job, limit=4)).data == b"one\n"


async def test_output_that_is_no_text_comes_back_as_it_was(rig: Rig) -> None:
    raw = bytes(range(256))
    job, _ = await logged(rig, raw)
    assert (await page(rig, job)).data == raw


async def test_limits_are_kept_in_bounds(rig: Rig) -> None:
    job, _ = await logged(rig, b"one\n")
    assert (await page(rig, job, limit=0)).data == b"o"
    assert (await page(rig, job, limit=-5)).data == b"o"
    assert (await page(rig, job, limit=10**12)).data == b"one\n"
