"""What lies in a mailbox is believed only as far as it proves itself, and counts once."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.control.harness import pieces, service, sha
from tests.control.storelink.harness import MailboxHarness, StoreRunner

from crucible.agent.link.connection import Unreachable
from crucible.control.db import schema as t
from crucible.control.storelink import receive
from crucible.core.people.identity import OWNER
from crucible.storage import Store, Stored, StoreFull
from crucible.wire.documents.mailbox import MAX_OUTSTANDING, segment_name
from crucible.wire.documents.messages import MAX_BATCH_BYTES, Batch, Message, MessageKind, encode_batch

LIFE = "0" * 24


class Full:
    """A store without room for what jobs keep."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def adopt(self, key: str, path: Path, sha256: str) -> Stored:
        raise StoreFull("There is no room left.")


async def _running(mailbox_harness: MailboxHarness) -> tuple[str, StoreRunner, Path]:
    job, machine, _ = await mailbox_harness.host_up()
    return job, await mailbox_harness.runner(job), mailbox_harness.box(machine)


async def _acked(mailbox_harness: MailboxHarness) -> int:
    (slot,) = await mailbox_harness.harness.rows(t.slots)
    return int(slot["acked"])


async def _notes(mailbox_harness: MailboxHarness) -> str:
    return "\n".join(row["data"] for row in await mailbox_harness.harness.rows(t.events) if row["type"] == "note")


def _keys(runner: StoreRunner) -> dict[str, str]:
    """What the runner may read in the store, by the last document to it."""
    document = runner.party.fetch_document()
    assert document is not None
    keys = document.body["keys"]
    assert isinstance(keys, dict)
    return keys


def _plant(box: Path, runner: StoreRunner, data: bytes, n: int = 1) -> Path:
    path = box / segment_name(runner.party.name, LIFE, n)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a batch",
        b"\xff\x00" * 100,
        json.dumps({"v": 1, "messages": []}).encode(),
        encode_batch(Batch("att_other", 0, (Message(1, MessageKind.ENDED, 0.0, {}),)), b"a guessed secret"),
        b"x" * (MAX_BATCH_BYTES + 1),
    ],
    ids=["empty", "text", "binary", "unsigned", "wrong signature", "huge"],
)
async def test_foreign_objects_are_passed_over(mailbox_harness: MailboxHarness, data: bytes) -> None:
    _, runner, box = await _running(mailbox_harness)
    planted = _plant(box, runner, data)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 0
    runner.say(MessageKind.STARTED, pid=77)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1
    assert planted.exists(), "what is not ours is not ours to delete"


async def test_strange_names_are_passed_over(mailbox_harness: MailboxHarness) -> None:
    _, runner, box = await _running(mailbox_harness)
    runner.say(MessageKind.STARTED, pid=77)
    up = box / f"parties/{runner.party.name}/up"
    for name in ("00000001", "..", "a b", f"{LIFE}-1", f"{LIFE}-00000001x"):
        if name != "..":
            (up / name).write_bytes(b"x")
    (box / "parties/nobody.x").mkdir()
    (box / "parties/nobody.x/alive").write_bytes(b"x")
    (box / "parties/att_unknown.0/up").mkdir(parents=True)
    (box / "parties/att_unknown.0/up" / f"{LIFE}-00000001").write_bytes(b"x")
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1


async def test_many_foreign_objects_do_not_keep_ours_from_being_read(mailbox_harness: MailboxHarness) -> None:
    _, runner, box = await _running(mailbox_harness)
    for n in range(100):
        _plant(box, runner, b"x", n)
    runner.say(MessageKind.STARTED, pid=77)
    for _ in range(3):
        await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1


async def test_a_batch_that_is_put_back_counts_once(mailbox_harness: MailboxHarness) -> None:
    _, runner, box = await _running(mailbox_harness)
    runner.say(MessageKind.NOTE, text="once")
    (path,) = (box / f"parties/{runner.party.name}/up").iterdir()
    raw = path.read_bytes()
    await mailbox_harness.link.round()
    _plant(box, runner, raw)
    await mailbox_harness.link.round()
    notes = [row for row in await mailbox_harness.harness.rows(t.events) if row["type"] == "note"]
    assert len(notes) == 1
    assert not (box / segment_name(runner.party.name, LIFE, 1)).exists()


async def test_a_batch_after_a_gap_waits(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    first, second = runner.message(MessageKind.STAGING, what="a"), runner.message(MessageKind.STAGING, what="b")
    runner.channel.send([second])
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 0
    runner.channel.send([first])
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 2


async def test_a_successor_that_says_more_is_understood(mailbox_harness: MailboxHarness) -> None:
    """A runner died before it wrote down what it had sent; the next one sends that again, with more."""
    job, runner, _ = await _running(mailbox_harness)
    messages = [runner.message(MessageKind.NOTE, text=str(n)) for n in range(5)]
    runner.channel.send(messages[:2])
    successor = await mailbox_harness.runner(job)
    successor.channel.send(messages[:4])
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 4
    successor.channel.send(messages[4:])
    await mailbox_harness.link.round()
    notes = [
        json.loads(row["data"])["text"] for row in await mailbox_harness.harness.rows(t.events) if row["type"] == "note"
    ]
    assert notes == ["0", "1", "2", "3", "4"]


async def test_what_is_announced_is_waited_for(mailbox_harness: MailboxHarness) -> None:
    _, runner, box = await _running(mailbox_harness)
    runner.artifact("model.bin", b"weights")
    (blob,) = (box / f"parties/{runner.party.name}/blobs").iterdir()
    away = box.parent / "away"
    os.rename(blob, away)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 0
    os.rename(away, blob)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1
    assert not blob.exists()


@pytest.mark.parametrize("harm", ["gone", "changed"])
async def test_what_is_lost_in_the_store_is_said_and_does_not_hold_up_the_rest(
    mailbox_harness: MailboxHarness, harm: str
) -> None:
    _, runner, box = await _running(mailbox_harness)
    runner.artifact("model.bin", b"weights")
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)
    (blob,) = (box / f"parties/{runner.party.name}/blobs").iterdir()
    blob.unlink()
    if harm == "changed":
        blob.write_bytes(b"other weights")
    await mailbox_harness.link.round()
    mailbox_harness.harness.clock.move(61.0)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 3
    assert await mailbox_harness.harness.rows(t.artifacts) == []
    notes = [
        json.loads(row["data"])["text"] for row in await mailbox_harness.harness.rows(t.events) if row["type"] == "note"
    ]
    assert notes == ["model.bin is not kept: it was lost in the store, or changed there"]


async def test_an_output_is_kept_however_long_its_name(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    name = "/".join(["x" * 200] * 5)
    runner.artifact(name, b"weights")
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1
    assert [row["path"] for row in await mailbox_harness.harness.rows(t.artifacts)] == [name]


async def test_another_content_under_a_known_name_is_noted_and_changes_nothing(mailbox_harness: MailboxHarness) -> None:
    job, runner, _ = await _running(mailbox_harness)
    runner.artifact("model.bin", b"first")
    runner.artifact("model.bin", b"other")
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 2
    file = await service(mailbox_harness.harness).outputs.artifact(OWNER, job, "model.bin")
    assert (file.sha256, mailbox_harness.harness.ports.store.get(file.key)) == (sha(b"first"), b"first")
    assert "stored already" in await _notes(mailbox_harness)


async def test_nothing_of_an_ended_attempt_is_stored_and_its_mail_is_dropped(mailbox_harness: MailboxHarness) -> None:
    _, runner, box = await _running(mailbox_harness)
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)
    await mailbox_harness.link.round()
    before = [await mailbox_harness.harness.rows(table) for table in (t.slots, t.artifacts, t.log_segments, t.events)]
    runner.artifact("model.bin", b"late")
    runner.log(1, 0, b"late\n")
    runner.checkpoint("late", b"late", 1)
    runner.say(MessageKind.NOTE, text="late")
    for _ in range(3):
        await mailbox_harness.link.round()
    assert [
        await mailbox_harness.harness.rows(table) for table in (t.slots, t.artifacts, t.log_segments, t.events)
    ] == before
    assert not list(box.glob("parties/*/up/*")), "nothing is left to be read for ever"
    assert not list(box.glob("parties/*/blobs/*"))


async def test_a_link_to_the_code_is_given_to_live_attempts_alone(mailbox_harness: MailboxHarness) -> None:
    await mailbox_harness.harness.bundles.put(OWNER, sha(b"code"), pieces(b"code"))
    job, _, _ = await mailbox_harness.host_up(bundle=sha(b"code"))
    runner = await mailbox_harness.runner(job)
    runner.say(MessageKind.STARTED, pid=77)
    runner.beat()
    await mailbox_harness.link.round()
    assert list(_keys(runner)) == [f"bundles/{sha(b'code')}"]
    runner.say(MessageKind.EXITED, code=0, cause="exit")
    runner.say(MessageKind.ENDED)
    await mailbox_harness.link.round()
    runner.say(MessageKind.NOTE, text="still there")
    runner.beat()
    await mailbox_harness.link.round()
    assert list(_keys(runner)) == []


async def test_a_store_that_is_full_delays_the_mail_and_nothing_else(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    full = await mailbox_harness.restart(Full(mailbox_harness.harness.ports.store))
    runner.artifact("model.bin", b"weights")
    runner.beat()
    await full.link.round()
    assert await _acked(mailbox_harness) == 0
    assert runner.party.fetch_document() is not None, "the runner is answered"
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 1


async def test_a_large_output_does_not_hold_up_the_round(
    mailbox_harness: MailboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, runner, _ = await _running(mailbox_harness)
    monkeypatch.setattr(receive, "WAIT_SECONDS", 0.01)
    may_go_on = asyncio.Event()
    put = mailbox_harness.harness.agents.put_artifact

    async def slow(*args: Any, **more: Any) -> None:
        await may_go_on.wait()
        await put(*args, **more)

    monkeypatch.setattr(mailbox_harness.harness.agents, "put_artifact", slow)
    runner.artifact("model.bin", b"weights")
    runner.beat()
    for _ in range(2):
        await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 0
    assert runner.party.fetch_document() is not None, "the runner is answered"
    may_go_on.set()
    async with asyncio.timeout(10):
        while await _acked(mailbox_harness) == 0:
            await mailbox_harness.link.round()
    await mailbox_harness.link.stop()


async def test_two_outputs_of_the_same_content_both_arrive(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    runner.artifact("a", b"same")
    await mailbox_harness.link.round()
    runner.artifact("b", b"same")
    runner.artifact("c", b"same")
    await mailbox_harness.link.round()
    assert [row["path"] for row in await mailbox_harness.harness.rows(t.artifacts)] == ["a", "b", "c"]


async def test_an_output_that_is_told_twice_is_fine(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    runner.artifact("a", b"same")
    await mailbox_harness.link.round()
    (row,) = await mailbox_harness.harness.rows(t.artifacts)
    runner.say(MessageKind.ARTIFACT, path="a", size=4, sha256=row["sha256"])
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 2


async def test_messages_that_make_no_sense_are_noted(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    runner.say(MessageKind.ARTIFACT, path="../../etc/passwd", size=1, sha256="0" * 64)
    runner.say(MessageKind.LOG, n="x")
    runner.say(MessageKind.CHECKPOINT, sha256=7)
    runner.say(MessageKind.LOG, n=-1, start=0, end=1, lines=1, sha256="0" * 64)
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == 4
    assert await mailbox_harness.harness.rows(t.artifacts) == []


async def test_a_runner_waits_when_nobody_takes_its_batches_in(mailbox_harness: MailboxHarness) -> None:
    _, runner, _ = await _running(mailbox_harness)
    runner.beat()
    for n in range(MAX_OUTSTANDING):
        runner.say(MessageKind.NOTE, text=str(n))
    with pytest.raises(Unreachable, match="has not read"):
        runner.say(MessageKind.NOTE, text="one too many")
    runner.n -= 1
    for _ in range(2):
        await mailbox_harness.link.round()
    runner.beat()
    await mailbox_harness.link.round()
    runner.say(MessageKind.NOTE, text="now")
    await mailbox_harness.link.round()
    assert await _acked(mailbox_harness) == MAX_OUTSTANDING + 1
