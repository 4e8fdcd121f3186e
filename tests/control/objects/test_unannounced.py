"""What attempts store and never announce is bounded, counted, and removed after their end."""

from __future__ import annotations

import pytest
from tests.control.world import FakeRunner, Rig, other_worker, pieces, sha

from crucible.control.db import schema as t
from crucible.control.objects import quota, unannounced
from crucible.control.objects.unannounced import Unannounced
from crucible.control.objects.uploads import PUT_DEADLINE
from crucible.core.errors import BadInput
from crucible.wire.documents.messages import MessageKind

LATER = PUT_DEADLINE + unannounced.SETTLE_SECONDS + 1


async def put(runner: FakeRunner, rig: Rig, path: str, data: bytes) -> None:
    await rig.agents.put_artifact(runner.attempt, 0, path, sha(data), pieces(data))


def stored(rig: Rig) -> set[bytes]:
    store = rig.ports.store
    return {store.get(key) for key, _ in store.list("")}


async def test_an_attempt_announces_before_it_stores_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced, "MOST_BYTES", 10)
    _, runner = await rig.running()
    await put(runner, rig, "a", b"0123456789")
    with pytest.raises(Unannounced) as raised:
        await put(runner, rig, "b", b"more")
    assert raised.value.http_status == 507, "agents come back later"
    assert stored(rig) == {b"0123456789"}
    await put(runner, rig, "a", b"0123456789")
    await runner.say(MessageKind.ARTIFACT, path="a", size=10, sha256=sha(b"0123456789"))
    await put(runner, rig, "b", b"more")
    assert await rig.read(quota.used_bytes) == 14, "what is not announced counts, too"


@pytest.mark.parametrize(("kind", "error"), [("artifact", Unannounced), ("checkpoint", Unannounced), ("log", BadInput)])
async def test_so_many_objects_wait_for_their_messages_and_no_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(unannounced, "MOST_OBJECTS", 3)
    _, runner = await rig.running()

    async def store(n: int) -> None:
        data = str(n).encode()
        if kind == "artifact":
            await put(runner, rig, "the same name", data)
        elif kind == "checkpoint":
            await rig.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data))
        else:
            await rig.agents.put_log(runner.attempt, 0, 1, 0, 1, sha(data), data)

    for n in range(3):
        await store(n)
    with pytest.raises(error, match="has not announced"):
        await store(3)
    await store(2)
    assert stored(rig) == {b"0", b"1", b"2"}


async def test_the_limit_is_one_for_all_servers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced, "MOST_OBJECTS", 1)
    _, runner = await rig.running()
    await put(runner, rig, "a", b"a")
    twin = await other_worker(rig, "w2")
    with pytest.raises(Unannounced):
        await put(runner, twin, "b", b"b")


async def test_what_was_never_announced_is_removed_after_the_end(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.artifact("kept", b"kept")
    await runner.log(1, 0, b"one\n")
    await runner.checkpoint(b"state", 1)
    await put(runner, rig, "never told", b"garbage")
    await put(runner, rig, "the same again", b"kept")
    await rig.agents.put_log(runner.attempt, 0, 2, 4, 1, sha(b"two\n"), b"two\n")
    await rig.agents.put_checkpoint(runner.attempt, 0, sha(b"unsaid"), pieces(b"unsaid"))
    rig.clock.move(LATER)
    await rig.services.retention.round()
    assert {b"garbage", b"two\n", b"unsaid"} <= stored(rig), "its messages may still come"
    await runner.end()
    await rig.services.retention.round()
    assert stored(rig) == {b"kept", b"one\n", b"state"}
    assert await rig.rows(t.uploads) == []


async def test_nothing_is_removed_that_may_still_be_on_its_way_to_the_store(rig: Rig) -> None:
    _, runner = await rig.running()
    await put(runner, rig, "a", b"a")
    await runner.end()
    await rig.services.retention.round()
    assert len(await rig.rows(t.uploads)) == 1
    rig.clock.move(LATER)
    await rig.services.retention.round()
    assert stored(rig) == set()
    assert await rig.rows(t.uploads) == []


async def test_a_checkpoint_that_another_attempt_saved_too_stays(rig: Rig) -> None:
    job, first = await rig.running(retries={"infrastructure": 1, "wait_seconds": 0})
    await rig.agents.put_checkpoint(first.attempt, 0, sha(b"same"), pieces(b"same"))
    await first.say(MessageKind.ENDED)
    rig.clock.move(10)
    await rig.place()
    following = await rig.runner(job)
    await following.say(MessageKind.STARTED, pid=78)
    await rig.agents.put_checkpoint(following.attempt, 0, sha(b"same"), pieces(b"same"))
    rig.clock.move(LATER)
    await rig.services.retention.round()
    assert stored(rig) == {b"same"}, "the other has not announced it yet"
    await following.checkpoint(b"same", 1)
    await rig.services.retention.round()
    assert stored(rig) == {b"same"}
    assert await rig.rows(t.uploads) == []
