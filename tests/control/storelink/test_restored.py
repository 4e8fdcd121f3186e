"""After a restore a mailbox begins after numbers that the database does not have."""

from __future__ import annotations

from tests.control.storelink.test_receive import LIFE
from tests.control.storelink.world import Mailroom
from tests.control.world import KEY

from crucible.control.db import schema as t
from crucible.control.upkeep import restore_hold
from crucible.core.lifecycle import JobState
from crucible.wire.documents.mailbox import segment_name
from crucible.wire.documents.messages import Batch, Message, MessageKind, derive_secret, encode_batch


async def test_mail_that_was_acknowledged_to_the_newer_database_is_given_up(mailroom: Mailroom) -> None:
    job, machine, _ = await mailroom.host_up()
    runner, rig = await mailroom.runner(job), mailroom.rig
    runner.say(MessageKind.STARTED, pid=77)
    await mailroom.link.round()
    attempt = (await rig.attempt(job)).id
    exited = Message(40, MessageKind.EXITED, 1.0, {"code": 0, "cause": "exit"})
    batch = Batch(attempt, 0, (exited, Message(41, MessageKind.ENDED, 1.0, {})))
    path = mailroom.box(machine) / segment_name(runner.party.name, LIFE, 40)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_batch(batch, derive_secret(KEY, "attempt", attempt)))

    await mailroom.link.round()
    assert (await rig.world(job)).job.state is JobState.RUNNING, "a gap is a gap"
    rig.clock.move(60)
    await rig.sql(lambda conn: restore_hold.mark_restored(conn, rig.clock.now(), 0.0))
    await mailroom.link.round()
    assert (await rig.world(job)).job.state is JobState.RUNNING, "nothing is said or taken before it is confirmed"
    await rig.sql(lambda conn: restore_hold.confirm(conn, rig.clock.now()))
    for _ in range(3):
        await mailroom.link.round()
    assert (await rig.world(job)).job.state is JobState.COMPLETED
    assert {row["acked"] for row in await rig.rows(t.slots)} == {41}
