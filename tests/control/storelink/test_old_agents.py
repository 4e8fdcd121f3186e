"""A mailbox in which an agent of version 0.1.0 speaks: its documents are unreadable, its batches are as they were."""

from __future__ import annotations

import json

import pytest
from tests.control.storelink.harness import MailboxHarness, StoreRunner
from tests.wire.documents.test_crypto import OF_VERSION_010

from crucible.agent.link.channel import ClaimedByAnother
from crucible.control.db import schema as t
from crucible.core.job.states import Condition
from crucible.core.lifecycle import JobState, MachineState, Reason
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.wire.documents.messages import MessageKind


async def notes(mailbox_harness: MailboxHarness) -> list[str]:
    return [json.loads(e["data"])["text"] for e in await mailbox_harness.harness.rows(t.events) if e["type"] == "note"]


async def _running(mailbox_harness: MailboxHarness) -> tuple[str, str, StoreRunner]:
    """A job that runs when the server is replaced; from now on its agents speak as they did in 0.1.0."""
    job, machine, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.say(MessageKind.STARTED, pid=77)
    runner.beat()
    await mailbox_harness.link.round()
    for party in ("host", runner.party.name):
        (mailbox_harness.box(machine) / f"parties/{party}/alive").write_bytes(OF_VERSION_010)
    return job, machine, runner


async def test_its_users_hear_it_once_and_it_counts_as_silent(mailbox_harness: MailboxHarness) -> None:
    job, machine, runner = await _running(mailbox_harness)
    again = await mailbox_harness.restart()
    for _ in range(3):
        await again.link.round()
    (note,) = await notes(again)
    assert "version 0.1.0" in note
    assert "crucible machines terminate" in note
    assert not again.harness.contacts.has_pending
    await again.harness.listen(60.0)
    world = await again.harness.world(job)
    assert (world.job.state, world.job.conditions) == (JobState.RUNNING, {Condition.UNREACHABLE})
    box = again.box(machine)
    assert (box / "parties/host/alive").read_bytes() == OF_VERSION_010
    assert (box / f"parties/{runner.party.name}/alive").exists()


async def test_what_it_stores_still_counts(mailbox_harness: MailboxHarness) -> None:
    job, machine, runner = await _running(mailbox_harness)
    runner.log(1, 0, b"one\n")
    runner.artifact("model.bin", b"weights")
    await (await mailbox_harness.restart()).link.round()
    assert (await mailbox_harness.harness.logs.page(job, None, 0, 100, None)).data == b"one\n"
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)
    await (await mailbox_harness.restart()).link.round()
    assert (await mailbox_harness.harness.world(job)).job.state is JobState.COMPLETED
    assert not any("/up/" in name or "/blobs/" in name for name in mailbox_harness.files(machine))


async def test_a_job_that_keeps_storing_is_silent_all_the_same_and_continues_once_its_machine_is_ended(
    mailbox_harness: MailboxHarness,
) -> None:
    job, machine, runner = await _running(mailbox_harness)
    again = await mailbox_harness.restart()
    for n in range(1, 13):
        runner.log(n, 4 * (n - 1), b"one\n")
        runner.say(MessageKind.POINTS, series={"loss": [[n, 0.5, 12.0]]})
        await again.link.round()
        await again.harness.listen(5.0)
    runner.checkpoint("step-1", b"state", 1)
    await again.link.round()
    assert len((await again.harness.logs.page(job, None, 0, 100, None)).data) == 12 * 4
    assert (await again.harness.world(job)).job.conditions == {Condition.UNREACHABLE}
    (note,) = await notes(again)
    await again.harness.machines.terminate(OWNER, note.rpartition(" ")[2])
    await again.harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    await again.link.round()
    await again.harness.listen(60.0)
    first, second = (await again.harness.world(job)).attempts
    assert (first.reason, first.resume_from) == (Reason.MACHINE_LOST, None)
    assert second.resume_from is not None


async def test_its_claim_is_not_granted(mailbox_harness: MailboxHarness) -> None:
    _, machine = await mailbox_harness.new_machine()
    box = mailbox_harness.box(machine)
    (box / "parties/host").mkdir(parents=True)
    for name in ("claim", "parties/host/alive"):
        (box / name).write_bytes(OF_VERSION_010)
    for _ in range(3):
        await mailbox_harness.link.round()
    found = await mailbox_harness.harness.machine(machine)
    assert (found.claimed_by, found.state) == (None, MachineState.CREATING)
    assert len(await notes(mailbox_harness)) == 1


async def test_a_new_host_of_the_machine_is_understood(mailbox_harness: MailboxHarness) -> None:
    """The old one has ended, and the place started the machine's agent again."""
    job, machine, _ = await _running(mailbox_harness)
    again = await mailbox_harness.restart()
    await again.link.round()
    host, stranger = again.host(machine), again.host(machine)
    assert await again.while_serving(lambda: host.line.claim("", "i-1"))
    with pytest.raises(ClaimedByAnother):
        stranger.line._put_claim("i-2")
    successor = await again.runner(job)
    successor.beat()
    await again.link.round()
    assert successor.party.fetch_document() is not None


async def test_the_mailbox_of_its_machine_stays_when_the_machine_is_gone(mailbox_harness: MailboxHarness) -> None:
    """Nothing shows that it is ours."""
    _, machine, _ = await _running(mailbox_harness)
    again = await mailbox_harness.restart()
    await again.harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    for _ in range(3):
        await again.link.round()
        again.harness.clock.move(3600.0)
    assert "parties/host/alive" in again.files(machine)
