from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests.control.harness import ControlHarness, pieces, sha

from crucible.control.objects.uploads import BATCH, PUT_DEADLINE, SLOWEST, TooLarge, Uploads
from crucible.control.runtime.system_ports import ThreadCalls
from crucible.core.errors import TimedOut
from crucible.storage import HashMismatch, ObjectStore, StoreFull, open_store
from crucible.storage.store import Stored

T = TypeVar("T")
LIMIT = 10_000_000


class CountingCalls:
    """Does the work at once and remembers the deadlines."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self.deadlines.append(deadline)
        return work()

    async def close(self) -> None: ...


class LateCalls(CountingCalls):
    """The `late`-th call times out; its work is done only when `catch_up` is called, long after."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self._late = late
        self._left: list[Callable[[], object]] = []

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        if len(self.deadlines) == self._late:
            self.deadlines.append(deadline)
            self._left.append(work)
            raise TimedOut("It takes too long.")
        return await super().run(lane, work, deadline)

    def catch_up(self) -> None:
        for work in self._left:
            work()


class FullStore(ObjectStore):
    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        raise StoreFull("There is no room left.")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "uploads"


def make(harness: ControlHarness, tmp_path: Path, calls: object) -> Uploads:
    ports = replace(harness.ports, store=open_store(str(tmp_path / "store")), calls=calls)  # type: ignore[arg-type]
    return Uploads(ports, tmp_path / "uploads")


def left_in(scratch: Path) -> list[Path]:
    return list(scratch.iterdir()) if scratch.exists() else []


async def test_an_object_is_moved_into_the_store(harness: ControlHarness, tmp_path: Path, scratch: Path) -> None:
    uploads = make(harness, tmp_path, CountingCalls())
    inodes: list[int] = []

    async def watched() -> AsyncIterator[bytes]:
        yield b"x" * BATCH
        yield b"y"
        inodes.extend(path.stat().st_ino for path in left_in(scratch))

    data = b"x" * BATCH + b"y"
    assert await uploads.put_object("a/k", sha(data), watched(), LIMIT) == len(data)
    assert [(tmp_path / "store/a/k").stat().st_ino] == inodes, "nothing was copied"
    assert (tmp_path / "store/a/k").read_bytes() == data
    assert left_in(scratch) == []


async def test_an_empty_object_is_one(harness: ControlHarness, tmp_path: Path) -> None:
    uploads = make(harness, tmp_path, CountingCalls())
    assert await uploads.put_object("k", sha(b""), pieces(), LIMIT) == 0
    assert (tmp_path / "store/k").read_bytes() == b""


async def test_small_pieces_are_written_together(harness: ControlHarness, tmp_path: Path) -> None:
    calls = CountingCalls()
    uploads = make(harness, tmp_path, calls)
    data = b"z" * (2 * BATCH + 7)
    small = [data[i : i + 4096] for i in range(0, len(data), 4096)]
    await uploads.put_object("k", sha(data), pieces(*small), LIMIT)
    assert len(calls.deadlines) == 4, "two batches, the rest, and the adoption"
    assert calls.deadlines[-1] == PUT_DEADLINE + len(data) / SLOWEST


async def test_a_bundle_says_whether_it_is_new(harness: ControlHarness, tmp_path: Path) -> None:
    uploads = make(harness, tmp_path, CountingCalls())
    assert await uploads.put_bundle(sha(b"abc"), pieces(b"abc"), LIMIT) == (3, True)
    assert await uploads.put_bundle(sha(b"abc"), pieces(b"a", b"bc"), LIMIT) == (3, False)


async def test_what_cannot_be_kept_leaves_nothing(harness: ControlHarness, tmp_path: Path, scratch: Path) -> None:
    uploads = make(harness, tmp_path, ThreadCalls())
    with pytest.raises(HashMismatch):
        await uploads.put_object("k", sha(b"abc"), pieces(b"abd"), LIMIT)
    with pytest.raises(TooLarge):
        await uploads.put_object("k", sha(b"abc"), pieces(b"x" * BATCH, b"y"), BATCH)
    assert left_in(scratch) == []
    assert not (tmp_path / "store/k").exists()


async def test_a_full_store_is_told(harness: ControlHarness, scratch: Path) -> None:
    ports = replace(harness.ports, store=FullStore(harness.ports.store._inner))  # type: ignore[attr-defined]
    with pytest.raises(StoreFull) as raised:
        await Uploads(ports, scratch).put_object("k", sha(b"abc"), pieces(b"abc"), LIMIT)
    assert raised.value.http_status == 507
    assert left_in(scratch) == []


async def test_a_scratch_folder_that_cannot_be_made_is_told(harness: ControlHarness, scratch: Path) -> None:
    scratch.write_bytes(b"in the way")
    uploads = Uploads(replace(harness.ports, calls=ThreadCalls()), scratch)
    with pytest.raises(Exception, match="could not be written") as raised:
        await uploads.put_object("k", sha(b"abc"), pieces(b"abc"), LIMIT)
    assert raised.value.http_status == 503  # type: ignore[attr-defined]


@pytest.mark.parametrize("late", [0, 1, 2])
async def test_work_that_starts_after_its_deadline_finds_nothing_to_do(
    harness: ControlHarness, tmp_path: Path, scratch: Path, late: int
) -> None:
    calls = LateCalls(late)
    uploads = make(harness, tmp_path, calls)
    with pytest.raises(TimedOut):
        await uploads.put_object("k", sha(b"x" * BATCH), pieces(b"x" * BATCH), LIMIT)
    with pytest.raises(Exception, match="given up"):
        calls.catch_up()
    assert left_in(scratch) == []
    assert not (tmp_path / "store/k").exists()


async def test_a_cancelled_upload_leaves_nothing(harness: ControlHarness, tmp_path: Path, scratch: Path) -> None:
    uploads = make(harness, tmp_path, ThreadCalls())
    waiting = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"x" * BATCH
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(uploads.put_object("k", sha(b"x"), stuck(), LIMIT))
    await waiting.wait()
    assert len(left_in(scratch)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_in(scratch) == []


async def test_an_adoption_that_takes_too_long_still_leaves_nothing(
    harness: ControlHarness, tmp_path: Path, scratch: Path
) -> None:
    begun, go = threading.Event(), threading.Event()

    class SlowStore(ObjectStore):
        def adopt(self, key: str, path: Path, sha256: str) -> Stored:
            begun.set()
            assert go.wait(10)
            raise StoreFull("There is no room left.")

    calls = ThreadCalls()
    ports = replace(harness.ports, store=SlowStore(harness.ports.store._inner), calls=calls)  # type: ignore[attr-defined]
    task = asyncio.create_task(Uploads(ports, scratch).put_object("k", sha(b"abc"), pieces(b"abc"), LIMIT))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(left_in(scratch)) == 1, "the store is still at it"
    go.set()
    async with asyncio.timeout(10):
        while left_in(scratch):
            await asyncio.sleep(0)


async def test_what_a_killed_server_left_is_cleared(harness: ControlHarness, tmp_path: Path, scratch: Path) -> None:
    uploads = make(harness, tmp_path, ThreadCalls())
    await uploads.remove_leftovers()
    scratch.mkdir()
    (scratch / "upload-of-a-killed-server").write_bytes(b"half")
    (scratch / "notes").write_bytes(b"somebody's")

    async def cleared() -> AsyncIterator[bytes]:
        yield b"x" * BATCH
        await uploads.remove_leftovers()
        yield b"y"

    assert await uploads.put_object("k", sha(b"x" * BATCH + b"y"), cleared(), LIMIT) == BATCH + 1
    assert left_in(scratch) == [scratch / "notes"], "neither what is under way nor what is another's"
