"""After a restore a mailbox begins after numbers that the database does not have."""

from __future__ import annotations

from tests.control.harness import KEY
from tests.control.storelink.harness import MailboxHarness
from tests.control.storelink.test_receive import LIFE

from crucible.control.db import schema as t
from crucible.control.upkeep import restore_hold
from crucible.core.lifecycle import JobState
from crucible.wire.documents.mailbox import segment_name
from crucible.wire.documents.messages import Batch, Message, MessageKind, derive_secret, encode_batch


async def test_mail_that_was_acknowledged_to_the_newer_database_is_given_up(mailbox_harness: MailboxHarness) -> None:
    job, machine, _ = await mailbox_harness.host_up()
    runner, harness = await mailbox_harness.runner(job), mailbox_harness.harness
    runner.say(MessageKind.STARTED, pid=77)
    await mailbox_harness.link.round()
    attempt = (await harness.attempt(job)).id
    exited = Message(40, MessageKind.EXITED, 1.0, {"code": 0, "cause": "exit"})
    batch = Batch(attempt, 0, (exited, Message(41, MessageKind.ENDED, 1.0, {})))
    path = mailbox_harness.box(machine) / segment_name(runner.party.name, LIFE, 40)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_batch(batch, derive_secret(KEY, "attempt", attempt)))

    await mailbox_harness.link.round()
    assert (await harness.world(job)).job.state is JobState.RUNNING, "a gap is a gap"
    harness.clock.move(60)
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), 0.0))
    await mailbox_harness.link.round()
    assert (await harness.world(job)).job.state is JobState.RUNNING, "nothing is said or taken before it is confirmed"
    await harness.sql(lambda conn: restore_hold.confirm(conn, harness.clock.now()))
    for _ in range(3):
        await mailbox_harness.link.round()
    assert (await harness.world(job)).job.state is JobState.COMPLETED
    assert {row["acked"] for row in await harness.rows(t.slots)} == {41}
