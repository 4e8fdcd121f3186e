"""Code that is sent, and sent again, while it is pruned: no bytes without a row stay, no row is without its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.control.fakes import Killed
from tests.control.harness import ControlHarness, pieces, sha
from tests.control.upkeep.test_retention import retention, stored

from crucible.control.objects import gc_marks, pending_objects
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.control.upkeep import retention as retention_module
from crucible.control.upkeep.retention import RemovalResult
from crucible.core.people.identity import OWNER
from crucible.storage import HashMismatch
from crucible.storage.layout import bundle_key

CODE = b"code"
BUNDLE = sha(CODE)
KEY = bundle_key(BUNDLE)


def die() -> None:
    raise Killed


@contextmanager
def dying(point: str) -> Iterator[None]:
    """The process dies there."""
    arm(point, die)
    try:
        with pytest.raises(Killed):
            yield
    finally:
        disarm()


class Slow:
    """Somebody who sends the same code, and has not sent all of it yet."""

    def __init__(self, harness: ControlHarness) -> None:
        self._begun, self._rest = asyncio.Event(), asyncio.Event()
        self._sending = asyncio.create_task(harness.bundles.put(OWNER, BUNDLE, self._chunks()))

    async def begun(self) -> None:
        await self._begun.wait()

    async def ended(self) -> bool:
        self._rest.set()
        return await self._sending

    async def _chunks(self) -> AsyncIterator[bytes]:
        self._begun.set()
        await self._rest.wait()
        yield CODE


async def weeks_pass(harness: ControlHarness) -> None:
    for _ in range(3):
        harness.clock.move(gc_marks.ARRIVAL_SECONDS)
        await retention(harness).round()


async def test_bytes_whose_row_never_came_go_once_nobody_can_send_them_any_more(harness: ControlHarness) -> None:
    with dying("bundle.after_put"):
        await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    await retention(harness).round()
    assert stored(harness) == {KEY}, "its sender may come again"
    await weeks_pass(harness)
    assert stored(harness) == set()
    assert await harness.read(pending_objects.list_pending) == []


async def test_what_has_its_row_is_not_looked_for(harness: ControlHarness) -> None:
    await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    assert len(await harness.read(pending_objects.list_pending)) == 1
    await weeks_pass(harness)
    assert await harness.read(pending_objects.list_pending) == []
    assert stored(harness) == {KEY}


async def test_nothing_is_expected_of_bytes_that_no_store_was_asked_to_take(harness: ControlHarness) -> None:
    with pytest.raises(HashMismatch):
        await harness.bundles.put(OWNER, BUNDLE, pieces(b"other"))
    assert await harness.read(pending_objects.list_pending) == []


async def test_what_comes_again_while_the_round_that_removed_it_goes_on_is_expected_anew(
    harness: ControlHarness,
) -> None:
    await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    keeper, done = retention(harness), RemovalResult()
    harness.clock.move(10.0)
    await keeper._drop_bundles(0.0)
    left = await harness.read(retention_module._pending_removals)
    await keeper._remove(left.objects, done)
    assert stored(harness) == set()
    with dying("bundle.after_put"):
        await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    await harness.sql(lambda conn: retention_module._note_round(conn, done, harness.clock.now()))
    await weeks_pass(harness)
    assert stored(harness) == set()


async def test_bytes_of_a_slow_sender_go_though_those_of_another_were_pruned_before(harness: ControlHarness) -> None:
    slow = Slow(harness)
    await slow.begun()
    await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    harness.clock.move(10.0)
    await retention(harness).prune(older_than=0.0, dry_run=False)
    with dying("bundle.after_put"):
        await slow.ended()
    await weeks_pass(harness)
    assert stored(harness) == set()


async def test_a_row_is_never_without_its_bytes(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sender's bytes are in and its row is not, when another's of the same code come, and are pruned."""
    uploads, arrived, rest = harness.bundles._uploads, asyncio.Event(), asyncio.Event()
    real = uploads.put_bundle

    async def late(*what: Any) -> tuple[int, bool]:
        done = await real(*what)
        arrived.set()
        await rest.wait()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "put_bundle", late)
        sending = asyncio.create_task(harness.bundles.put(OWNER, BUNDLE, pieces(CODE)))
        await arrived.wait()
    await harness.bundles.put(OWNER, BUNDLE, pieces(CODE))
    harness.clock.move(10.0)
    await retention(harness).prune(older_than=0.0, dry_run=False)
    rest.set()
    await sending
    assert await harness.bundles.has(OWNER, BUNDLE)
    await weeks_pass(harness)
    assert stored(harness) == {KEY}
