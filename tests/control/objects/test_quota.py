from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.control.harness import ControlHarness, pieces, sha

from crucible.control.objects.bundles import Bundles
from crucible.control.objects.quota import REMEMBERED_SECONDS, QuotaLimits, StoreQuota
from crucible.control.objects.uploads import Uploads
from crucible.core.compute.resources import GiB
from crucible.core.people.identity import OWNER
from crucible.storage import Store, StoreFull


class SmallDisk:
    """The real store on a disk with `free` bytes left."""

    def __init__(self, inner: Store, free: int) -> None:
        self._inner = inner
        self.free = free
        self.looks = 0

    def free_bytes(self) -> int:
        self.looks += 1
        return self.free

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def disk(harness: ControlHarness) -> SmallDisk:
    return SmallDisk(harness.ports.store, 2 * GiB)


def bundles(harness: ControlHarness, disk: SmallDisk, **bounds: Any) -> Bundles:
    ports = replace(harness.ports, store=disk)
    uploads = Uploads(ports, harness.deployment.scratch, StoreQuota(ports, QuotaLimits(**bounds)))
    return Bundles(ports, uploads, 1000)


async def test_uploads_begin_while_there_is_room(harness: ControlHarness, disk: SmallDisk) -> None:
    assert await bundles(harness, disk).put(OWNER, sha(b"code"), pieces(b"code"))


async def test_below_the_reserve_nothing_is_taken_and_the_fix_is_told(harness: ControlHarness, disk: SmallDisk) -> None:
    disk.free = GiB - 1
    with pytest.raises(StoreFull) as told:
        await bundles(harness, disk).put(OWNER, sha(b"code"), pieces(b"code"))
    assert "crucible prune" in told.value.fix
    assert told.value.http_status == 507
    assert not await bundles(harness, disk).has(OWNER, sha(b"code"))


async def test_a_quota_counts_what_the_ledgers_say(harness: ControlHarness, disk: SmallDisk) -> None:
    mine = bundles(harness, disk, quota=10)
    await mine.put(OWNER, sha(b"123456789"), pieces(b"123456789"))
    harness.clock.move(REMEMBERED_SECONDS)
    await mine.put(OWNER, sha(b"ab"), pieces(b"ab"))
    harness.clock.move(REMEMBERED_SECONDS)
    with pytest.raises(StoreFull) as told:
        await mine.put(OWNER, sha(b"c"), pieces(b"c"))
    assert "store_quota" in told.value.why


async def test_many_small_uploads_look_once(harness: ControlHarness, disk: SmallDisk) -> None:
    mine = bundles(harness, disk)
    for n in range(5):
        await mine.put(OWNER, sha(b"%d" % n), pieces(b"%d" % n))
    assert disk.looks == 1
    harness.clock.move(REMEMBERED_SECONDS)
    await mine.put(OWNER, sha(b"last"), pieces(b"last"))
    assert disk.looks == 2


async def test_without_a_reserve_the_disk_may_be_filled(harness: ControlHarness, disk: SmallDisk) -> None:
    disk.free = 1
    assert await bundles(harness, disk, reserve=0).put(OWNER, sha(b"code"), pieces(b"code"))
