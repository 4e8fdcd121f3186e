"""The two sockets of a session, and what goes from one to the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import ATTEMPT, JOB, KEY, FakeControl, FakeJob

from crucible.core.errors import Conflict
from crucible.core.people import Identity
from crucible.server import relay, sessions
from crucible.wire import sessions as s
from crucible.wire.messages import derive_secret

ASKING = {"authorization": f"Bearer {TOKEN}"}
AS_RUNNER = {"authorization": f"Bearer {derive_secret(KEY, 'attempt', ATTEMPT).decode()}"}
PATH = f"/api/v1/jobs/{JOB}/session"
LINE = f"/agent/v1/attempts/{ATTEMPT}/0/sessions/ses-1"
LS = s.opening(s.Command(("ls",)))


@pytest.fixture
def control(control: FakeControl) -> FakeControl:
    control.add(FakeJob(JOB))
    return control


@asynccontextmanager
async def met(
    control: FakeControl, api: FastAPI, agents_api: FastAPI
) -> AsyncIterator[tuple[SocketClient, SocketClient]]:
    """A session that has begun: its client, and the agent, who has taken the opening."""
    async with SocketClient(api, PATH, ASKING) as client:
        await client.accepted()
        client.send(LS)
        while "ses-1" not in control.meetings:
            await asyncio.sleep(0)
        async with SocketClient(agents_api, LINE, AS_RUNNER) as agent:
            await agent.accepted()
            assert await agent.received() == LS
            yield client, agent


async def over(socket: SocketClient) -> s.Over:
    return s.read_over(await socket.received())


async def problem_of(socket: SocketClient) -> s.Problem:
    problem = (await over(socket)).problem
    assert problem is not None
    return problem


async def closed(socket: SocketClient) -> int:
    message = await socket.message()
    assert message["type"] == "websocket.close", message
    return int(message["code"])


async def test_frames_go_both_ways_untouched(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    async with met(control, api, agents_api) as (client, agent):
        for frame in (s.ready(), s.data(b"\xff\x00 out"), s.data(b"err", s.Kind.ERROR_DATA), s.credit(9), s.end()):
            agent.send(frame)
            assert await client.received() == frame
        for frame in (s.data(b"\xfe in"), s.end(), s.resize(s.Size(1, 2)), s.credit(7)):
            client.send(frame)
            assert await agent.received() == frame
        agent.send(s.over(s.Over(code=3)))
        assert await over(client) == s.Over(code=3)
        assert await closed(client) == 1000
        assert await closed(agent) == 1000


async def test_who_leaves_lets_the_agent_go(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    async with met(control, api, agents_api) as (client, agent):
        client.leave()
        assert await closed(agent) == 1000
        assert not control.meetings


@asynccontextmanager
async def waiting(control: FakeControl, api: FastAPI) -> AsyncIterator[SocketClient]:
    """A session that is opened and whose agent has not come: it is on its way, or the job's program has not begun."""
    async with SocketClient(api, PATH, ASKING) as client:
        await client.accepted()
        client.send(LS)
        while "ses-1" not in control.meetings:
            await asyncio.sleep(0)
        yield client


async def test_who_leaves_before_the_agent_comes_has_asked_for_nothing(control: FakeControl, api: FastAPI) -> None:
    async with waiting(control, api) as client:
        client.send(s.data(b"typed ahead"))
        client.leave()
        await asyncio.wait_for(client.ended(), 1)
        assert not control.meetings


async def test_what_was_sent_ahead_comes_in_order(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    ahead = [s.data(b"one"), s.resize(s.Size(1, 2)), s.data(b"two"), s.end()]
    async with waiting(control, api) as client:
        for frame in ahead:
            client.send(frame)
        async with SocketClient(agents_api, LINE, AS_RUNNER) as agent:
            await agent.accepted()
            assert [await agent.received() for _ in range(5)] == [LS, *ahead]
            client.send(s.credit(1))
            assert await agent.received() == s.credit(1)


async def test_more_ahead_than_there_is_room_for(control: FakeControl, api: FastAPI) -> None:
    async with waiting(control, api) as client:
        for _ in range(relay.MAX_AHEAD // s.CHUNK + 1):
            client.send(s.data(b"x" * s.CHUNK))
        problem = await problem_of(client)
        assert (problem.code, "credit" in problem.why) == ("bad_input", True)
        assert not control.meetings


async def test_an_agent_that_goes_without_a_word(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    async with met(control, api, agents_api) as (client, agent):
        agent.leave()
        problem = await problem_of(client)
        assert (problem.code, problem.status) == ("unreachable", 503)


@pytest.mark.parametrize("frame", [b"", b"?x", s.over(s.Over(code=0)), s.ready(), s.data(b"x" * s.MAX_FRAME)])
async def test_what_a_client_may_not_send(
    control: FakeControl, api: FastAPI, agents_api: FastAPI, frame: bytes
) -> None:
    async with met(control, api, agents_api) as (client, agent):
        client.send(frame)
        problem = await problem_of(client)
        assert problem.code == "bad_input"
        assert await closed(agent) == 1000


async def test_a_text_is_no_frame(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    async with met(control, api, agents_api) as (client, _):
        client.say("O{}")
        problem = await problem_of(client)
        assert "binary" in problem.why


async def test_what_an_agent_may_not_send(control: FakeControl, api: FastAPI, agents_api: FastAPI) -> None:
    async with met(control, api, agents_api) as (client, agent):
        agent.send(LS)
        problem = await problem_of(client)
        assert problem.code == "bad_input"


@pytest.mark.parametrize("first", [b"", b"D123", b"O{}", s.end(), b"O" + b"[" * 50_000])
async def test_what_opens_nothing_never_reaches_an_agent(control: FakeControl, api: FastAPI, first: bytes) -> None:
    async with SocketClient(api, PATH, ASKING) as client:
        await client.accepted()
        client.send(first)
        problem = await problem_of(client)
        assert problem.code == "bad_input"
        assert not control.meetings


async def test_who_says_nothing_is_not_waited_for(
    control: FakeControl, api: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "OPEN_SECONDS", 0.01)
    async with SocketClient(api, PATH, ASKING) as client:
        await client.accepted()
        problem = await problem_of(client)
        assert problem.code == "timed_out"


async def test_a_refusal_comes_before_the_socket(
    control: FakeControl, api: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(who: Identity, ref: str) -> None:
        raise Conflict("It does not run.", fix="Wait.")

    monkeypatch.setattr(control, "enter", refuse)
    async with SocketClient(api, PATH, ASKING) as client:
        status, problem = await client.refusal()
        assert (status, problem["code"], problem["fix"]) == (409, "conflict", "Wait.")


async def test_another_sites_page_opens_no_session(control: FakeControl, api: FastAPI) -> None:
    async with SocketClient(api, PATH, {**ASKING, "origin": "https://elsewhere.example"}) as client:
        assert await client.status() == 403


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (LINE, {}, 401),
        (LINE, {"authorization": "Bearer x"}, 401),
        (LINE.replace(ATTEMPT, "att-other"), AS_RUNNER, 401),
        (LINE, {**AS_RUNNER, "origin": "http://127.0.0.1"}, 403),
        (LINE, AS_RUNNER, 404),
        (LINE.replace("ses-1", "x" * 65), AS_RUNNER, 422),
    ],
)
async def test_who_may_not_come(
    control: FakeControl, agents_api: FastAPI, path: str, headers: dict[str, str], status: int
) -> None:
    """The last but one is a session that nobody has asked for, or that is over."""
    async with SocketClient(agents_api, path, headers) as agent:
        assert await agent.status() == status


async def test_a_client_that_takes_nothing_is_let_go(
    control: FakeControl, api: FastAPI, agents_api: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SEND_SECONDS", 0.05)
    async with SocketClient(api, PATH, ASKING, room=1) as client:
        await client.accepted()
        client.send(LS)
        while "ses-1" not in control.meetings:
            await asyncio.sleep(0)
        async with SocketClient(agents_api, LINE, AS_RUNNER) as agent:
            await agent.accepted()
            await agent.received()
            for _ in range(5):
                agent.send(s.data(b"x"))
            assert await closed(agent) == 1000


async def test_a_token_that_ends_takes_its_session_along(
    control: FakeControl, api: FastAPI, agents_api: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(socket: object, seconds: float) -> None:
        while not control.meetings:
            await asyncio.sleep(0)

    monkeypatch.setattr(sessions, "until_expelled", at_once)
    async with SocketClient(api, PATH, ASKING) as client:
        await client.accepted()
        client.send(LS)
        problem = await problem_of(client)
        assert problem.code == "not_allowed"
        assert not control.meetings
