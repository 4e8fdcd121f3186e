"""A machine that is gone is judged once its mailbox was read to its end, and what it said there counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.control.storelink.world import Mailroom, StoreRunner
from tests.control.world import KEY

from crucible.control.storelink import Mailboxes, StoreLink, drain, receive, storelink
from crucible.core.lifecycle import JobState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import SETTLE_WINDOW
from crucible.storage import Store, StoreUnreachable
from crucible.wire.documents.mailbox import ROOT
from crucible.wire.documents.messages import MessageKind


class Silent:
    """A store that does not say what lies in mailboxes."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def list(self, prefix: str) -> Any:
        if prefix.startswith(ROOT):
            raise StoreUnreachable("No answer.")
        return self._inner.list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def running(mailroom: Mailroom) -> tuple[str, str, StoreRunner]:
    """A job without another try: how its attempt ends is how it ends."""
    job, machine, _ = await mailroom.host_up(retries={"infrastructure": 0, "interruption": 0})
    runner = await mailroom.runner(job)
    runner.say(MessageKind.STARTED, pid=77)
    await mailroom.link.round()
    assert (await mailroom.rig.world(job)).job.state is JobState.RUNNING
    return job, machine, runner


def finish(runner: StoreRunner) -> None:
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)


async def goes(mailroom: Mailroom, machine: str) -> None:
    await mailroom.rig.change_machine(machine, f.SeenGone(), f.SeenGone())


async def passes(mailroom: Mailroom, seconds: float) -> None:
    """Mail is read and due jobs are judged, as often as that is."""
    end = mailroom.rig.clock.now() + seconds
    while mailroom.rig.clock.now() < end:
        await mailroom.link.round()
        await mailroom.rig.reconciler.round()
        mailroom.rig.clock.move(2.0)


async def world(mailroom: Mailroom, job: str) -> World:
    return await mailroom.rig.world(job)


async def test_the_runners_word_counts_however_long_its_last_checkpoint_takes(
    mailroom: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machine, runner = await running(mailroom)
    monkeypatch.setattr(receive, "WAIT_SECONDS", 0.01)
    may_go_on, put = asyncio.Event(), mailroom.rig.agents.put_checkpoint

    async def slow(*args: Any, **more: Any) -> None:
        await may_go_on.wait()
        await put(*args, **more)

    monkeypatch.setattr(mailroom.rig.agents, "put_checkpoint", slow)
    runner.checkpoint("last", b"large", 9)
    finish(runner)
    await goes(mailroom, machine)
    await passes(mailroom, 20 * SETTLE_WINDOW)
    assert (await world(mailroom, job)).live is not None, "there is mail to be taken in"
    may_go_on.set()
    async with asyncio.timeout(20):
        while (await world(mailroom, job)).live is not None:
            await mailroom.link.round()
    found = (await world(mailroom, job)).job
    assert (found.state, found.reason) == (JobState.COMPLETED, Reason.COMPLETED)
    await mailroom.link.stop()


async def test_mail_that_takes_many_rounds_is_read_to_its_end(
    mailroom: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machine, runner = await running(mailroom)
    monkeypatch.setattr(receive, "SEGMENTS_A_ROUND", 1)
    for n in range(10):
        runner.say(MessageKind.NOTE, text=str(n))
    finish(runner)
    await goes(mailroom, machine)
    await passes(mailroom, 40.0)
    assert (await world(mailroom, job)).job.state is JobState.COMPLETED


async def test_what_is_missing_is_waited_for_and_then_the_rest_counts(mailroom: Mailroom) -> None:
    job, machine, runner = await running(mailroom)
    runner.artifact("model.bin", b"weights")
    finish(runner)
    (blob,) = (mailroom.box(machine) / f"parties/{runner.party.name}/blobs").iterdir()
    blob.unlink()
    await goes(mailroom, machine)
    await passes(mailroom, receive.LOST_SECONDS + 10)
    assert (await world(mailroom, job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("left", ["nothing", "a gap"])
async def test_a_machine_without_last_words_is_judged_after_the_settle_window(mailroom: Mailroom, left: str) -> None:
    job, machine, runner = await running(mailroom)
    if left == "a gap":
        runner.n += 1  # the segment before was never stored
        finish(runner)
    await goes(mailroom, machine)
    await mailroom.link.round()
    await mailroom.rig.reconciler.round()
    assert (await world(mailroom, job)).live is not None
    await passes(mailroom, 2 * SETTLE_WINDOW + 4)
    assert (await world(mailroom, job)).job.reason is Reason.MACHINE_LOST


async def test_a_store_that_does_not_answer_holds_the_judgement_up_and_not_for_ever(mailroom: Mailroom) -> None:
    job, machine, runner = await running(mailroom)
    finish(runner)
    deaf = await mailroom.restart(Silent(mailroom.rig.ports.store))
    await goes(mailroom, machine)
    await passes(deaf, 60.0)
    assert (await world(mailroom, job)).live is not None
    deaf.rig.clock.move(drain.LIMIT_SECONDS)
    await passes(deaf, 2 * SETTLE_WINDOW)
    assert (await world(mailroom, job)).job.reason is Reason.MACHINE_LOST


async def test_a_server_that_starts_late_reads_the_mail_before_it_judges(mailroom: Mailroom) -> None:
    job, machine, runner = await running(mailroom)
    finish(runner)
    await goes(mailroom, machine)
    mailroom.rig.clock.move(3600.0 / 4)
    deaf = await mailroom.restart(Silent(mailroom.rig.ports.store))
    await passes(deaf, 10.0)
    assert not deaf.link.all_read
    assert (await world(mailroom, job)).live is not None
    hearing = await mailroom.restart()
    await passes(hearing, 4.0)
    assert hearing.link.all_read
    assert (await world(mailroom, job)).job.state is JobState.COMPLETED


async def test_one_mailbox_that_hangs_holds_up_no_other(mailroom: Mailroom, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _, runner = await running(mailroom)
    monkeypatch.setattr(storelink, "LOOK_SECONDS", 0.02)
    hung, serve = asyncio.Event(), mailroom.link._serve

    async def hanging(name: str) -> bool:
        if name == "mch_hangs":
            await hung.wait()
        return await serve(name)

    monkeypatch.setattr(mailroom.link, "_serve", hanging)
    mailroom.link._serving["mch_hangs"] = asyncio.create_task(hanging("mch_hangs"))
    finish(runner)
    async with asyncio.timeout(20):  # how much one round does depends on how busy the computer is
        while (await world(mailroom, job)).job.state is not JobState.COMPLETED:
            await mailroom.link.round()
    assert "mch_hangs" in mailroom.link._serving
    await mailroom.link.stop()


async def test_where_the_store_is_not_used_nobody_waits_for_mail(mailroom: Mailroom) -> None:
    """An agent that speaks over https leaves none."""
    rig = mailroom.rig
    job, _ = await rig.running(retries={"infrastructure": 0})
    machine = (await rig.machine()).id
    mailroom.link = StoreLink(
        rig.ports, rig.agents, Mailboxes(rig.ports, mailroom.folder), KEY, rig.backends, invites=False
    )
    await mailroom.link.round()
    await goes(mailroom, machine)
    gone_at = rig.clock.now()
    await passes(mailroom, SETTLE_WINDOW + 2)
    found = await world(mailroom, job)
    assert found.job.reason is Reason.MACHINE_LOST
    assert (found.job.ended_at or 0.0) - gone_at <= SETTLE_WINDOW + 2
