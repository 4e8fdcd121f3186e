"""Code that is sent, and sent again, while it is pruned: no bytes without a row stay, no row is without its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.control.fakes import Killed
from tests.control.upkeep.test_retention import retention, stored
from tests.control.world import Rig, pieces, sha

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

    def __init__(self, rig: Rig) -> None:
        self._begun, self._rest = asyncio.Event(), asyncio.Event()
        self._sending = asyncio.create_task(rig.bundles.put(OWNER, BUNDLE, self._chunks()))

    async def begun(self) -> None:
        await self._begun.wait()

    async def ended(self) -> bool:
        self._rest.set()
        return await self._sending

    async def _chunks(self) -> AsyncIterator[bytes]:
        self._begun.set()
        await self._rest.wait()
        yield CODE


async def weeks_pass(rig: Rig) -> None:
    for _ in range(3):
        rig.clock.move(gc_marks.ARRIVAL_SECONDS)
        await retention(rig).round()


async def test_bytes_whose_row_never_came_go_once_nobody_can_send_them_any_more(rig: Rig) -> None:
    with dying("bundle.after_put"):
        await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    await retention(rig).round()
    assert stored(rig) == {KEY}, "its sender may come again"
    await weeks_pass(rig)
    assert stored(rig) == set()
    assert await rig.read(pending_objects.list_pending) == []


async def test_what_has_its_row_is_not_looked_for(rig: Rig) -> None:
    await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    assert len(await rig.read(pending_objects.list_pending)) == 1
    await weeks_pass(rig)
    assert await rig.read(pending_objects.list_pending) == []
    assert stored(rig) == {KEY}


async def test_nothing_is_expected_of_bytes_that_no_store_was_asked_to_take(rig: Rig) -> None:
    with pytest.raises(HashMismatch):
        await rig.bundles.put(OWNER, BUNDLE, pieces(b"other"))
    assert await rig.read(pending_objects.list_pending) == []


async def test_what_comes_again_while_the_round_that_removed_it_goes_on_is_expected_anew(rig: Rig) -> None:
    await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    keeper, done = retention(rig), RemovalResult()
    rig.clock.move(10.0)
    await keeper._drop_bundles(0.0)
    left = await rig.read(retention_module._pending_removals)
    await keeper._remove(left.objects, done)
    assert stored(rig) == set()
    with dying("bundle.after_put"):
        await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    await rig.sql(lambda conn: retention_module._note_round(conn, done, rig.clock.now()))
    await weeks_pass(rig)
    assert stored(rig) == set()


async def test_bytes_of_a_slow_sender_go_though_those_of_another_were_pruned_before(rig: Rig) -> None:
    slow = Slow(rig)
    await slow.begun()
    await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    rig.clock.move(10.0)
    await retention(rig).prune(older_than=0.0, dry_run=False)
    with dying("bundle.after_put"):
        await slow.ended()
    await weeks_pass(rig)
    assert stored(rig) == set()


async def test_a_row_is_never_without_its_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sender's bytes are in and its row is not, when another's of the same code come, and are pruned."""
    uploads, arrived, rest = rig.bundles._uploads, asyncio.Event(), asyncio.Event()
    real = uploads.put_bundle

    async def late(*what: Any) -> tuple[int, bool]:
        done = await real(*what)
        arrived.set()
        await rest.wait()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "put_bundle", late)
        sending = asyncio.create_task(rig.bundles.put(OWNER, BUNDLE, pieces(CODE)))
        await arrived.wait()
    await rig.bundles.put(OWNER, BUNDLE, pieces(CODE))
    rig.clock.move(10.0)
    await retention(rig).prune(older_than=0.0, dry_run=False)
    rest.set()
    await sending
    assert await rig.bundles.has(OWNER, BUNDLE)
    await weeks_pass(rig)
    assert stored(rig) == {KEY}
