"""Many who ask the same at the same moment: one read, one frame, and nobody gets less than by himself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import MappingProxyType

import pytest
from fastapi import FastAPI
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import JOB, FakeControl, FakeJob

from crucible.core.people import OWNER, Identity, Role, Via
from crucible.server.crowd import EVENT_PAGE, Crowd, Gathering

ADA = Identity("usr-1", "ada", Via.TOKEN, roles=MappingProxyType({"vision": Role.MEMBER}), token="tok-1")


class Question:
    """Answers with how often it was asked, when it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        mine = self.asked
        await self.go.wait()
        return mine


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_in_the_same_turn_shares_an_answer() -> None:
    gathering, question = Gathering(), Question()
    question.go.set()
    assert await asyncio.gather(*(gathering.ask("a", question) for _ in range(1000))) == [1] * 1000


async def test_other_questions_are_asked_by_themselves() -> None:
    gathering, question = Gathering(), Question()
    question.go.set()
    assert await asyncio.gather(gathering.ask("a", question), gathering.ask("b", question)) == [1, 2]


async def test_an_answer_that_is_under_way_is_not_joined() -> None:
    gathering, question = Gathering(), Question()
    first = asyncio.ensure_future(gathering.ask("a", question))
    await turns()
    later = asyncio.ensure_future(gathering.ask("a", question))
    await turns()
    question.go.set()
    assert (await first, await later) == (1, 2)


async def test_one_who_leaves_takes_the_answer_from_nobody() -> None:
    gathering, question = Gathering(), Question()
    first, second = (asyncio.ensure_future(gathering.ask("a", question)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    question.go.set()
    assert await second == 1
    assert first.cancelled()


async def test_what_went_wrong_is_told_to_all_and_forgotten() -> None:
    gathering = Gathering()

    async def broken() -> int:
        raise ValueError("no")

    told = await asyncio.gather(*(gathering.ask("a", broken) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in told] == ["no"] * 3
    question = Question()
    question.go.set()
    assert await gathering.ask("a", question) == 1


class Counting:
    """A control plane that counts who reads what."""

    def __init__(self, control: FakeControl) -> None:
        self._control = control
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
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

    async def counted(ref: str | None, *, after: int, limit: int) -> list[dict[str, object]]:
        nonlocal reads
        reads += 1
        return await events(ref, after=after, limit=limit)

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
    assert reads == 1
    for socket in sockets:
        await socket.__aexit__(None, None, None)
