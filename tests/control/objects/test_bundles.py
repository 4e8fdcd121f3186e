from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.harness import ControlHarness, pieces, sha

from crucible.control.db import schema as t
from crucible.control.objects.bundles import Bundles
from crucible.control.objects.uploads import TooLarge, Uploads
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.core.errors import NotFound
from crucible.core.people.identity import OWNER
from crucible.storage import HashMismatch, open_store
from crucible.storage.layout import bundle_key

DATA = b"an archive in several pieces"


class Killed(Exception):
    pass


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    disarm()


def die() -> None:
    raise Killed


def nothing_left(harness: ControlHarness) -> bool:
    scratch = harness.deployment.scratch
    return not scratch.exists() or not list(scratch.iterdir())


async def test_a_bundle_is_stored_once(harness: ControlHarness) -> None:
    assert not await harness.bundles.has(OWNER, sha(DATA))
    assert await harness.bundles.put(OWNER, sha(DATA), pieces(DATA[:5], DATA[5:]))
    assert not await harness.bundles.put(OWNER, sha(DATA), pieces(DATA))
    assert await harness.bundles.has(OWNER, sha(DATA))
    found = await harness.bundles.open(sha(DATA))
    assert (found.size, found.sha256) == (len(DATA), sha(DATA))
    assert harness.ports.store.get(found.key) == DATA
    assert nothing_left(harness)


async def test_other_bytes_than_announced_are_refused(harness: ControlHarness) -> None:
    with pytest.raises(HashMismatch):
        await harness.bundles.put(OWNER, sha(DATA), pieces(b"something else"))
    assert not await harness.bundles.has(OWNER, sha(DATA))
    assert harness.ports.store.size(bundle_key(sha(DATA))) is None
    assert nothing_left(harness)


async def test_too_much_is_refused_while_it_arrives(harness: ControlHarness) -> None:
    arrived = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal arrived
        while True:
            arrived += 1
            yield b"x" * 100

    with pytest.raises(TooLarge) as raised:
        await harness.bundles.put(OWNER, sha(DATA), endless())
    assert raised.value.http_status == 413
    assert arrived == 11
    assert nothing_left(harness)


async def test_an_upload_that_breaks_off_leaves_nothing(harness: ControlHarness) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield DATA[:5]
        raise ConnectionError("the client went away")

    with pytest.raises(ConnectionError):
        await harness.bundles.put(OWNER, sha(DATA), broken())
    assert nothing_left(harness)
    assert await harness.rows(t.bundles) == []


async def test_a_crash_between_the_bytes_and_their_row_is_mended_by_the_next_upload(
    harness: ControlHarness, tmp_path: Path
) -> None:
    ports = replace(harness.ports, store=open_store(str(tmp_path / "store")))
    bundles = Bundles(ports, Uploads(ports, tmp_path / "uploads"), 1000)
    arm("bundle.after_put", die)
    with pytest.raises(Killed):
        await bundles.put(OWNER, sha(DATA), pieces(DATA))
    disarm()
    assert not await bundles.has(OWNER, sha(DATA)), "without its row it is not there"
    with pytest.raises(HashMismatch):
        await bundles.put(OWNER, sha(DATA), pieces(DATA[:3]))
    await bundles.put(OWNER, sha(DATA), pieces(DATA))
    assert (await bundles.open(sha(DATA))).size == len(DATA)


async def test_what_is_not_there_cannot_be_opened(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await harness.bundles.open(sha(DATA))
