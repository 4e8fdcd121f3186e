"""What attempts store and never announce is bounded, counted, and removed after their end."""

from __future__ import annotations

import pytest
from tests.control.harness import ControlHarness, FakeRunner, other_worker, pieces, sha

from crucible.control.db import schema as t
from crucible.control.objects import quota, unannounced
from crucible.control.objects.unannounced import Unannounced
from crucible.control.objects.uploads import PUT_DEADLINE
from crucible.core.errors import BadInput
from crucible.wire.documents.messages import MessageKind

LATER = PUT_DEADLINE + unannounced.SETTLE_SECONDS + 1


async def put(runner: FakeRunner, harness: ControlHarness, path: str, data: bytes) -> None:
    await harness.agents.put_artifact(runner.attempt, 0, path, sha(data), pieces(data))


def stored(harness: ControlHarness) -> set[bytes]:
    store = harness.ports.store
    return {store.get(key) for key, _ in store.list("")}


async def test_an_attempt_announces_before_it_stores_more(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unannounced, "MOST_BYTES", 10)
    _, runner = await harness.running()
    await put(runner, harness, "a", b"0123456789")
    with pytest.raises(Unannounced) as raised:
        await put(runner, harness, "b", b"more")
    assert raised.value.http_status == 507, "agents come back later"
    assert stored(harness) == {b"0123456789"}
    await put(runner, harness, "a", b"0123456789")
    await runner.say(MessageKind.ARTIFACT, path="a", size=10, sha256=sha(b"0123456789"))
    await put(runner, harness, "b", b"more")
    assert await harness.read(quota.used_bytes) == 14, "what is not announced counts, too"


@pytest.mark.parametrize(("kind", "error"), [("artifact", Unannounced), ("checkpoint", Unannounced), ("log", BadInput)])
async def test_so_many_objects_wait_for_their_messages_and_no_more(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, kind: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(unannounced, "MOST_OBJECTS", 3)
    _, runner = await harness.running()

    async def store(n: int) -> None:
        data = str(n).encode()
        if kind == "artifact":
            await put(runner, harness, "the same name", data)
        elif kind == "checkpoint":
            await harness.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data))
        else:
            await harness.agents.put_log(runner.attempt, 0, 1, 0, 1, sha(data), data)

    for n in range(3):
        await store(n)
    with pytest.raises(error, match="has not announced"):
        await store(3)
    await store(2)
    assert stored(harness) == {b"0", b"1", b"2"}


async def test_the_limit_is_one_for_all_servers(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced, "MOST_OBJECTS", 1)
    _, runner = await harness.running()
    await put(runner, harness, "a", b"a")
    twin = await other_worker(harness, "w2")
    with pytest.raises(Unannounced):
        await put(runner, twin, "b", b"b")


async def test_what_was_never_announced_is_removed_after_the_end(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.artifact("kept", b"kept")
    await runner.log(1, 0, b"one\n")
    await runner.checkpoint(b"state", 1)
    await put(runner, harness, "never told", b"garbage")
    await put(runner, harness, "the same again", b"kept")
    await harness.agents.put_log(runner.attempt, 0, 2, 4, 1, sha(b"two\n"), b"two\n")
    await harness.agents.put_checkpoint(runner.attempt, 0, sha(b"unsaid"), pieces(b"unsaid"))
    harness.clock.move(LATER)
    await harness.services.retention.round()
    assert {b"garbage", b"two\n", b"unsaid"} <= stored(harness), "its messages may still come"
    await runner.end()
    await harness.services.retention.round()
    assert stored(harness) == {b"kept", b"one\n", b"state"}
    assert await harness.rows(t.uploads) == []


async def test_nothing_is_removed_that_may_still_be_on_its_way_to_the_store(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await put(runner, harness, "a", b"a")
    await runner.end()
    await harness.services.retention.round()
    assert len(await harness.rows(t.uploads)) == 1
    harness.clock.move(LATER)
    await harness.services.retention.round()
    assert stored(harness) == set()
    assert await harness.rows(t.uploads) == []


async def test_a_checkpoint_that_another_attempt_saved_too_stays(harness: ControlHarness) -> None:
    job, first = await harness.running(retries={"infrastructure": 1, "wait_seconds": 0})
    await harness.agents.put_checkpoint(first.attempt, 0, sha(b"same"), pieces(b"same"))
    await first.say(MessageKind.ENDED)
    harness.clock.move(10)
    await harness.place()
    following = await harness.runner(job)
    await following.say(MessageKind.STARTED, pid=78)
    await harness.agents.put_checkpoint(following.attempt, 0, sha(b"same"), pieces(b"same"))
    harness.clock.move(LATER)
    await harness.services.retention.round()
    assert stored(harness) == {b"same"}, "the other has not announced it yet"
    await following.checkpoint(b"same", 1)
    await harness.services.retention.round()
    assert stored(harness) == {b"same"}
    assert await harness.rows(t.uploads) == []
