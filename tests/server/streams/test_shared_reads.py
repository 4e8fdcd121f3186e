"""Many who ask the same at the same moment: one read, one frame, and nobody gets less than alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

import pytest
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.streams.test_sockets import note, watchers

from crucible.control.db import schema as t
from crucible.control.telemetry.feed import Hint
from crucible.core.people.identity import OWNER, Identity, LoginMethod, Permission, Role
from crucible.core.views.records import EventPage
from crucible.server.streams.coalesce import Coalescer
from crucible.server.streams.shared_reads import EVENT_PAGE, SharedReads

ADA = Identity("usr-1", "ada", LoginMethod.TOKEN, roles=MappingProxyType({"default": Role.MEMBER}), token="tok-1")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def job(app: App) -> str:
    return await app.harness.submit()


@pytest.fixture
def reads(app: App, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read from now on."""
    found: list[str] = []
    view, events = app.control.jobs.view, app.control.outputs.events

    async def read_view(who: Identity, ref: str) -> object:
        found.append("view")
        return await view(who, ref)

    async def read_events(who: Identity, ref: str | None, *, after: int, limit: int) -> EventPage:
        found.append("events")
        return await events(who, ref, after=after, limit=limit)

    monkeypatch.setattr(app.control.jobs, "view", read_view)
    monkeypatch.setattr(app.control.outputs, "events", read_events)
    return found


def shared_reads(app: App, *people: Identity) -> list[SharedReads]:
    coalescer = Coalescer()
    return [SharedReads(app.control, coalescer, who) for who in people]


async def test_events_are_read_and_written_once_for_all_with_the_same_permissions(
    app: App, job: str, reads: list[str]
) -> None:
    other = replace(ADA, token="tok-2")
    found = await asyncio.gather(*(one.events(job, 1) for one in shared_reads(app, ADA, ADA, other)))
    assert reads == ["events"]
    assert found[0] is found[1] is found[2]
    assert (found[0].last, found[0].more, len(found[0].frames)) == (3, False, 2)


@pytest.mark.parametrize(
    "other",
    [
        OWNER,
        replace(ADA, user="usr-2", name="bob"),
        replace(ADA, admin=True),
        replace(ADA, roles=MappingProxyType({"default": Role.VIEWER})),
        replace(ADA, project="default"),
        replace(ADA, scopes=frozenset({Permission.READ})),
    ],
    ids=["owner", "user", "admin", "roles", "project", "scopes"],
)
async def test_who_may_something_else_reads_alone(app: App, job: str, reads: list[str], other: Identity) -> None:
    await asyncio.gather(*(one.view(job) for one in shared_reads(app, ADA, other)))
    assert reads == ["view", "view"]


async def test_who_sees_one_job_alone_reads_alone(app: App, job: str, reads: list[str]) -> None:
    await asyncio.gather(*(one.view(job) for one in shared_reads(app, ADA, replace(ADA, job=job))))
    assert reads == ["view", "view"]


async def test_a_full_page_of_events_says_that_more_may_follow(app: App, job: str) -> None:
    count = len(await app.harness.rows(t.events))
    await note(app, job, EVENT_PAGE + 1 - count)
    [one] = shared_reads(app, OWNER)
    first = await one.events(job, 0)
    rest = await one.events(job, first.last)
    none = await one.events(job, rest.last)
    assert (first.more, first.last) == (True, EVENT_PAGE)
    assert (rest.more, rest.last) == (False, EVENT_PAGE + 1)
    assert (none.more, none.last, none.frames) == (False, EVENT_PAGE + 1, ())


async def test_a_job_s_frame_is_written_once(app: App, job: str) -> None:
    one, two = await asyncio.gather(*(one.view(job) for one in shared_reads(app, OWNER, OWNER)))
    assert one is two
    assert one.frame is two.frame


@asynccontextmanager
async def feed(app: App, count: int, after: int) -> AsyncIterator[list[SocketClient]]:
    """Sockets that follow all jobs and have read what there was."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with AsyncExitStack() as held:
        sockets = [SocketClient(app.api, f"/api/v1/stream?after={after}", headers) for _ in range(count)]
        for socket in sockets:
            await held.enter_async_context(socket)
            await socket.accepted()
        await turns(50)
        yield sockets
    await turns(50)


async def test_an_event_reaches_every_socket_of_the_feed_by_one_read(app: App, job: str, reads: list[str]) -> None:
    count = len(await app.harness.rows(t.events))
    async with feed(app, 30, count) as sockets:
        reads.clear()
        await note(app, job)
        assert [(await socket.frame())["cursor"] for socket in sockets] == [count + 1] * 30
        await turns(50)
        assert reads == ["events"] * 2  # that of the event, and one look for what came meanwhile
        app.harness.feed.publish(job, [Hint.LOG])
        await turns(50)
        assert reads == ["events"] * 2  # output is no event


async def test_the_feed_is_watched_once_however_many_follow_and_by_nobody_once_they_left(app: App) -> None:
    async with feed(app, 30, 0):
        assert watchers(app, None) == 1
    assert watchers(app, None) == 0


async def test_a_feed_without_a_hint_is_looked_at_now_and_then(
    app: App, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(await app.harness.rows(t.events))
    [one] = shared_reads(app, OWNER)
    coming = asyncio.ensure_future(one.next_events(count, 0.001))
    await turns(20)
    assert not coming.done()
    monkeypatch.setattr(app.harness.feed, "publish", lambda job, hints: None)
    await note(app, job)
    async with asyncio.timeout(10):
        assert (await coming).last == count + 1
