"""A machine that is gone is judged once its mailbox was read to its end, and what it said there counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.control.harness import KEY
from tests.control.storelink.harness import MailboxHarness, StoreRunner

from crucible.control.storelink import Mailboxes, StoreLink, drain, receive, storelink
from crucible.core.lifecycle import JobState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import SETTLE_WINDOW
from crucible.storage import Store, StoreUnreachable
from crucible.wire.documents.mailbox import ROOT
from crucible.wire.documents.messages import MessageKind


class UnlistableStore:
    """A store that does not say what lies in mailboxes."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def list(self, prefix: str) -> Any:
        if prefix.startswith(ROOT):
            raise StoreUnreachable("No answer.")
        return self._inner.list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def running(mailbox_harness: MailboxHarness) -> tuple[str, str, StoreRunner]:
    """A job without another try: how its attempt ends is how it ends."""
    job, machine, _ = await mailbox_harness.host_up(retries={"infrastructure": 0, "interruption": 0})
    runner = await mailbox_harness.runner(job)
    runner.say(MessageKind.STARTED, pid=77)
    await mailbox_harness.link.round()
    assert (await mailbox_harness.harness.world(job)).job.state is JobState.RUNNING
    return job, machine, runner


def finish(runner: StoreRunner) -> None:
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)


async def goes(mailbox_harness: MailboxHarness, machine: str) -> None:
    await mailbox_harness.harness.change_machine(machine, f.SeenGone(), f.SeenGone())


async def passes(mailbox_harness: MailboxHarness, seconds: float) -> None:
    """Mail is read and due jobs are judged, as often as that is."""
    end = mailbox_harness.harness.clock.now() + seconds
    while mailbox_harness.harness.clock.now() < end:
        await mailbox_harness.link.round()
        await mailbox_harness.harness.reconciler.round()
        mailbox_harness.harness.clock.move(2.0)


async def world(mailbox_harness: MailboxHarness, job: str) -> World:
    return await mailbox_harness.harness.world(job)


async def test_the_runners_word_counts_however_long_its_last_checkpoint_takes(
    mailbox_harness: MailboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machine, runner = await running(mailbox_harness)
    monkeypatch.setattr(receive, "WAIT_SECONDS", 0.01)
    may_go_on, put = asyncio.Event(), mailbox_harness.harness.agents.put_checkpoint

    async def slow(*args: Any, **more: Any) -> None:
        await may_go_on.wait()
        await put(*args, **more)

    monkeypatch.setattr(mailbox_harness.harness.agents, "put_checkpoint", slow)
    runner.checkpoint("last", b"large", 9)
    finish(runner)
    await goes(mailbox_harness, machine)
    await passes(mailbox_harness, 20 * SETTLE_WINDOW)
    assert (await world(mailbox_harness, job)).live is not None, "there is mail to be taken in"
    may_go_on.set()
    async with asyncio.timeout(20):
        while (await world(mailbox_harness, job)).live is not None:
            await mailbox_harness.link.round()
    found = (await world(mailbox_harness, job)).job
    assert (found.state, found.reason) == (JobState.COMPLETED, Reason.COMPLETED)
    await mailbox_harness.link.stop()


async def test_mail_that_takes_many_rounds_is_read_to_its_end(
    mailbox_harness: MailboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machine, runner = await running(mailbox_harness)
    monkeypatch.setattr(receive, "SEGMENTS_A_ROUND", 1)
    for n in range(10):
        runner.say(MessageKind.NOTE, text=str(n))
    finish(runner)
    await goes(mailbox_harness, machine)
    await passes(mailbox_harness, 40.0)
    assert (await world(mailbox_harness, job)).job.state is JobState.COMPLETED


async def test_what_is_missing_is_waited_for_and_then_the_rest_counts(mailbox_harness: MailboxHarness) -> None:
    job, machine, runner = await running(mailbox_harness)
    runner.artifact("model.bin", b"weights")
    finish(runner)
    (blob,) = (mailbox_harness.box(machine) / f"parties/{runner.party.name}/blobs").iterdir()
    blob.unlink()
    await goes(mailbox_harness, machine)
    await passes(mailbox_harness, receive.LOST_SECONDS + 10)
    assert (await world(mailbox_harness, job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("left", ["nothing", "a gap"])
async def test_a_machine_without_last_words_is_judged_after_the_settle_window(
    mailbox_harness: MailboxHarness, left: str
) -> None:
    job, machine, runner = await running(mailbox_harness)
    if left == "a gap":
        runner.n += 1  # the segment before was never stored
        finish(runner)
    await goes(mailbox_harness, machine)
    await mailbox_harness.link.round()
    await mailbox_harness.harness.reconciler.round()
    assert (await world(mailbox_harness, job)).live is not None
    await passes(mailbox_harness, 2 * SETTLE_WINDOW + 4)
    assert (await world(mailbox_harness, job)).job.reason is Reason.MACHINE_LOST


async def test_a_store_that_does_not_answer_holds_the_judgement_up_and_not_for_ever(
    mailbox_harness: MailboxHarness,
) -> None:
    job, machine, runner = await running(mailbox_harness)
    finish(runner)
    deaf = await mailbox_harness.restart(UnlistableStore(mailbox_harness.harness.ports.store))
    await goes(mailbox_harness, machine)
    await passes(deaf, 60.0)
    assert (await world(mailbox_harness, job)).live is not None
    deaf.harness.clock.move(drain.LIMIT_SECONDS)
    await passes(deaf, 2 * SETTLE_WINDOW)
    assert (await world(mailbox_harness, job)).job.reason is Reason.MACHINE_LOST


async def test_a_server_that_starts_late_reads_the_mail_before_it_judges(mailbox_harness: MailboxHarness) -> None:
    job, machine, runner = await running(mailbox_harness)
    finish(runner)
    await goes(mailbox_harness, machine)
    mailbox_harness.harness.clock.move(3600.0 / 4)
    deaf = await mailbox_harness.restart(UnlistableStore(mailbox_harness.harness.ports.store))
    await passes(deaf, 10.0)
    assert not deaf.link.all_read
    assert (await world(mailbox_harness, job)).live is not None
    hearing = await mailbox_harness.restart()
    await passes(hearing, 4.0)
    assert hearing.link.all_read
    assert (await world(mailbox_harness, job)).job.state is JobState.COMPLETED


async def test_one_mailbox_that_hangs_holds_up_no_other(
    mailbox_harness: MailboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _, runner = await running(mailbox_harness)
    monkeypatch.setattr(storelink, "LOOK_SECONDS", 0.02)
    hung, serve = asyncio.Event(), mailbox_harness.link._serve

    async def hanging(name: str) -> bool:
        if name == "mch_hangs":
            await hung.wait()
        return await serve(name)

    monkeypatch.setattr(mailbox_harness.link, "_serve", hanging)
    mailbox_harness.link._serving["mch_hangs"] = asyncio.create_task(hanging("mch_hangs"))
    finish(runner)
    async with asyncio.timeout(20):  # how much one round does depends on how busy the computer is
        while (await world(mailbox_harness, job)).job.state is not JobState.COMPLETED:
            await mailbox_harness.link.round()
    assert "mch_hangs" in mailbox_harness.link._serving
    await mailbox_harness.link.stop()


async def test_where_the_store_is_not_used_nobody_waits_for_mail(mailbox_harness: MailboxHarness) -> None:
    """An agent that speaks over https leaves none."""
    harness = mailbox_harness.harness
    job, _ = await harness.running(retries={"infrastructure": 0})
    machine = (await harness.machine()).id
    mailbox_harness.link = StoreLink(
        harness.ports,
        harness.agents,
        Mailboxes(harness.ports, mailbox_harness.folder),
        KEY,
        harness.backends,
        invites=lambda: False,
    )
    await mailbox_harness.link.round()
    await goes(mailbox_harness, machine)
    gone_at = harness.clock.now()
    await passes(mailbox_harness, SETTLE_WINDOW + 2)
    found = await world(mailbox_harness, job)
    assert found.job.reason is Reason.MACHINE_LOST
    assert (found.job.ended_at or 0.0) - gone_at <= SETTLE_WINDOW + 2
