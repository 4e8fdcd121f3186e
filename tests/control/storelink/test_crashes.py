"""The control plane dies at every border between two calls of the store; its successor loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.control.fakes import Killed
from tests.control.harness import sha
from tests.control.storelink.harness import MailboxHarness

from crucible.control.db import schema as t
from crucible.storage import Store

CHANGES = frozenset({"put", "put_new", "adopt", "delete"})


class DyingStore:
    """A store at whose `fatal`-th change the process dies: before it, or after it."""

    def __init__(self, inner: Store, fatal: int, *, after: bool) -> None:
        self._inner = inner
        self._fatal = fatal
        self._after = after
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return self._counted(call) if name in CHANGES else call

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **more: Any) -> Any:
            self.changes += 1
            if self.changes == self._fatal and not self._after:
                raise Killed
            done = call(*args, **more)
            if self.changes == self._fatal:
                raise Killed
            return done

        return change


async def test_every_border(mailbox_harness: MailboxHarness) -> None:
    """Each life of the control plane dies one change later than the one before, until one survives."""
    job, machine, host = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    host.beat()
    runner.beat()
    runner.whole_life()
    deaths = 0
    for fatal in range(1, 200):
        store = DyingStore(mailbox_harness.harness.ports.store, 1 + fatal // 2, after=bool(fatal % 2))
        again = await mailbox_harness.restart(store)
        try:
            await again.link.round()
            break
        except Killed:
            deaths += 1
    assert deaths > 5, "there are many borders"
    await _is_whole(mailbox_harness, job)
    assert not any("/up/" in name or "/blobs/" in name for name in mailbox_harness.files(machine))


@pytest.mark.parametrize("fatal", [1, 2, 3, 4, 5, 6, 10, 17, 18])
async def test_each_border_once(mailbox_harness: MailboxHarness, fatal: int) -> None:
    """Four things are stored, the acknowledgement is told, what was taken in is deleted, the host is told."""
    job, machine, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.beat()
    runner.whole_life()
    store = DyingStore(mailbox_harness.harness.ports.store, fatal, after=True)
    with pytest.raises(Killed):
        await (await mailbox_harness.restart(store)).link.round()
    await (await mailbox_harness.restart()).link.round()
    await _is_whole(mailbox_harness, job)
    assert not any("/up/" in name or "/blobs/" in name for name in mailbox_harness.files(machine))


async def _is_whole(mailbox_harness: MailboxHarness, job: str) -> None:
    attempt = (await mailbox_harness.harness.attempt(job)).id
    (row,) = [row for row in await mailbox_harness.harness.rows(t.jobs) if row["id"] == job]
    assert row["state"] == "completed"
    (slot,) = [row for row in await mailbox_harness.harness.rows(t.slots) if row["attempt"] == attempt]
    assert slot["acked"] == 8
    page = await mailbox_harness.harness.logs.page(job, None, 0, 100, None)
    assert page.data == b"one\ntwo\n"
    artifacts = [row for row in await mailbox_harness.harness.rows(t.artifacts) if row["attempt"] == attempt]
    assert [(row["path"], row["sha256"]) for row in artifacts] == [("model.bin", sha(b"weights"))]
    checkpoints = [row for row in await mailbox_harness.harness.rows(t.checkpoints) if row["attempt"] == attempt]
    assert [(row["step"], row["sha256"]) for row in checkpoints] == [(1, sha(b"state"))]
    kinds = [row["type"] for row in await mailbox_harness.harness.rows(t.events) if row["job"] == job]
    assert kinds.count("checkpoint") == 1
