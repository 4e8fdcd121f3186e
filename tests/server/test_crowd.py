"""Many who ask the same at the same moment: one read, one frame, and nobody gets less than by himself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from fastapi import FastAPI
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import JOB, FakeControl, FakeJob

from crucible.core.people import OWNER, Identity, Role, Via
from crucible.server.crowd import EVENT_PAGE, Crowd
from crucible.server.gathering import Gathering

ADA = Identity("usr-1", "ada", Via.TOKEN, roles=MappingProxyType({"vision": Role.MEMBER}), token="tok-1")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Counting:
    """A control plane that counts who reads what."""

    def __init__(self, control: FakeControl) -> None:
        self._control = control
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("jobs", "outputs"):
            return self

        async def read(*values: object, **more: object) -> object:
            self.reads.append(name)
            return await getattr(self._control, name)(*values, **more)

        return read


def crowd_of(control: object, *people: Identity) -> list[Crowd]:
    gathering = Gathering()
    return [Crowd(control, gathering, who) for who in people]  # type: ignore[arg-type]


async def test_events_are_read_and_written_once_for_all_who_may_the_same(control: FakeControl) -> None:
    control.add(FakeJob(events=[{"n": 1, "cursor": 7, "job": JOB, "type": "x", "at": "", "data": {}}]))
    counting = Counting(control)
    other = replace(ADA, token="tok-2")
    found = await asyncio.gather(*(one.events(JOB, 0) for one in crowd_of(counting, ADA, ADA, other)))
    assert counting.reads == ["events"]
    assert found[0] is found[1] is found[2]
    assert (found[0].last, found[0].more, len(found[0].frames)) == (1, False, 1)


@pytest.mark.parametrize(
    "other",
    [
        OWNER,
        replace(ADA, user="usr-2", name="bob"),
        replace(ADA, admin=True),
        replace(ADA, roles=MappingProxyType({"vision": Role.VIEWER})),
        replace(ADA, scopes=frozenset()),
        replace(ADA, project="vision"),
        replace(ADA, job=JOB),
    ],
    ids=["owner", "user", "admin", "roles", "scopes", "project", "job"],
)
async def test_who_may_something_else_reads_by_himself(control: FakeControl, other: Identity) -> None:
    control.add(FakeJob())
    counting = Counting(control)
    await asyncio.gather(*(one.view(JOB) for one in crowd_of(counting, ADA, other)))
    assert counting.reads == ["view", "view"]


async def test_a_full_page_of_events_says_that_more_may_follow(control: FakeControl) -> None:
    numbers = range(1, EVENT_PAGE + 2)
    control.add(FakeJob(events=[{"n": n, "cursor": n, "job": JOB, "type": "x", "at": "", "data": {}} for n in numbers]))
    [crowd] = crowd_of(control, OWNER)
    first = await crowd.events(JOB, 0)
    rest = await crowd.events(JOB, first.last)
    none = await crowd.events(JOB, rest.last)
    assert (first.more, first.last) == (True, EVENT_PAGE)
    assert (rest.more, rest.last) == (False, EVENT_PAGE + 1)
    assert (none.more, none.last, none.frames) == (False, EVENT_PAGE + 1, ())


async def test_a_job_s_frame_is_written_once(control: FakeControl) -> None:
    control.add(FakeJob())
    one, two = await asyncio.gather(*(crowd.view(JOB) for crowd in crowd_of(control, OWNER, OWNER)))
    assert one is two
    assert one.frame is two.frame


async def test_an_event_reaches_every_socket_of_the_feed_by_one_read(api: FastAPI, control: FakeControl) -> None:
    job = FakeJob()
    control.add(job)
    reads = 0
    events = control.events

    async def counted(who: Identity, ref: str | None, *, after: int, limit: int) -> list[dict[str, object]]:
        nonlocal reads
        reads += 1
        return await events(who, ref, after=after, limit=limit)

    headers = {"Authorization": f"Bearer {TOKEN}"}
    sockets = [SocketClient(api, "/api/v1/stream", headers) for _ in range(30)]
    for socket in sockets:
        await socket.__aenter__()
        await socket.accepted()
    await turns(50)
    control.events = counted  # type: ignore[method-assign]
    job.events.append({"n": 1, "cursor": 1, "job": JOB, "type": "x", "at": "", "data": {}})
    control.tell(None, "event")
    assert [(await socket.frame())["cursor"] for socket in sockets] == [1] * 30
    await turns(50)
    assert reads == 2  # that of the event, and one look for what came meanwhile
    control.tell(None, "log")
    await turns(50)
    assert reads == 2  # output is no event
    for socket in sockets:
        await socket.__aexit__(None, None, None)


async def test_the_feed_is_watched_once_however_many_follow_and_by_nobody_once_they_left(
    api: FastAPI, control: FakeControl
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    sockets = [SocketClient(api, "/api/v1/stream", headers) for _ in range(30)]
    for socket in sockets:
        await socket.__aenter__()
        await socket.accepted()
    await turns(50)
    assert len(control.watches[None]) == 1
    for socket in sockets:
        await socket.__aexit__(None, None, None)
    await turns(50)
    assert len(control.watches[None]) == 0


async def test_a_feed_without_a_hint_is_looked_at_now_and_then(control: FakeControl) -> None:
    job = FakeJob()
    control.add(job)
    [crowd] = crowd_of(control, OWNER)
    coming = asyncio.ensure_future(crowd.later(0, 0.001))
    await turns(20)
    assert not coming.done()
    job.events.append({"n": 1, "cursor": 1, "job": JOB, "type": "x", "at": "", "data": {}})
    async with asyncio.timeout(10):
        assert (await coming).last == 1
