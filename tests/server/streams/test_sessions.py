"""The two sockets of a session, and what goes from one to the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from fastapi import FastAPI
from tests.control.harness import secret
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN

from crucible.core.errors import Unreachable
from crucible.server.agents.api import build_agents_api
from crucible.server.streams import relay, sessions
from crucible.wire.http import sessions as s

ASKING = {"authorization": f"Bearer {TOKEN}"}
PATH = "/api/v1/jobs/last/session"
LS = s.open_frame(s.Command(("ls",)))


@dataclass(frozen=True)
class Job:
    """A job that runs, and both listeners of its server."""

    app: App
    agents_api: FastAPI
    attempt: str

    @property
    def open(self) -> list[str]:
        """The sessions that have been asked for and are not over."""
        return list(self.app.control._services.sessions._open)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {secret('attempt', self.attempt).decode()}"}

    def client(self, room: int = 0) -> SocketClient:
        return SocketClient(self.app.api, PATH, ASKING, room=room)

    def agent(self, session: str, room: int = 0) -> SocketClient:
        return SocketClient(self.agents_api, self.line(session), self.headers, room=room)

    def line(self, session: str) -> str:
        return f"/agent/v1/attempts/{self.attempt}/0/sessions/{session}"

    async def asked(self) -> str:
        """Return the session once it has been asked for."""
        async with asyncio.timeout(5):
            while not self.open:
                await asyncio.sleep(0)
        return self.open[0]


@pytest.fixture
async def job(app: App) -> Job:
    _, runner = await app.harness.running()
    return Job(app, build_agents_api(app.control.agents), runner.attempt)


@asynccontextmanager
async def waiting(job: Job) -> AsyncIterator[SocketClient]:
    """A session that is opened and whose agent has not come."""
    async with job.client() as client:
        await client.accepted()
        client.send(LS)
        await job.asked()
        yield client


@asynccontextmanager
async def met(job: Job) -> AsyncIterator[tuple[SocketClient, SocketClient]]:
    """A session that has begun: its client, and the agent, who has taken the opening."""
    async with waiting(job) as client, job.agent(await job.asked()) as agent:
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


async def test_frames_go_both_ways_untouched(job: Job) -> None:
    async with met(job) as (client, agent):
        for frame in (
            s.ready_frame(),
            s.data_frame(b"\xff\x00 out"),
            s.data_frame(b"err", s.FrameKind.ERROR_DATA),
            s.credit_frame(9),
            s.end_frame(),
        ):
            agent.send(frame)
            assert await client.received() == frame
        for frame in (s.data_frame(b"\xfe in"), s.end_frame(), s.resize_frame(s.Size(1, 2)), s.credit_frame(7)):
            client.send(frame)
            assert await agent.received() == frame
        agent.send(s.over_frame(s.Over(code=3)))
        assert await over(client) == s.Over(code=3)
        assert await closed(client) == 1000
        assert await closed(agent) == 1000


async def test_who_leaves_lets_the_agent_go(job: Job) -> None:
    async with met(job) as (client, agent):
        client.leave()
        assert await closed(agent) == 1000
        assert not job.open


async def test_who_leaves_before_the_agent_comes_has_asked_for_nothing(job: Job) -> None:
    async with waiting(job) as client:
        client.send(s.data_frame(b"typed ahead"))
        client.leave()
        await asyncio.wait_for(client.ended(), 1)
        assert not job.open


async def test_what_was_sent_ahead_comes_in_order(job: Job) -> None:
    ahead = [s.data_frame(b"one"), s.resize_frame(s.Size(1, 2)), s.data_frame(b"two"), s.end_frame()]
    async with waiting(job) as client:
        for frame in ahead:
            client.send(frame)
        async with job.agent(await job.asked()) as agent:
            await agent.accepted()
            assert [await agent.received() for _ in range(5)] == [LS, *ahead]
            client.send(s.credit_frame(1))
            assert await agent.received() == s.credit_frame(1)


async def test_more_ahead_than_there_is_room_for(job: Job) -> None:
    async with waiting(job) as client:
        for _ in range(relay.MAX_AHEAD // s.CHUNK + 1):
            client.send(s.data_frame(b"x" * s.CHUNK))
        problem = await problem_of(client)
        assert (problem.code, "credit" in problem.why) == ("bad_input", True)
        assert not job.open


async def test_an_agent_that_goes_without_a_word(job: Job) -> None:
    async with met(job) as (client, agent):
        agent.leave()
        problem = await problem_of(client)
        assert (problem.code, problem.status) == ("unreachable", 503)


@pytest.mark.parametrize(
    "frame", [b"", b"?x", s.over_frame(s.Over(code=0)), s.ready_frame(), s.data_frame(b"x" * s.MAX_FRAME)]
)
async def test_what_a_client_may_not_send(job: Job, frame: bytes) -> None:
    async with met(job) as (client, agent):
        client.send(frame)
        problem = await problem_of(client)
        assert problem.code == "bad_input"
        assert await closed(agent) == 1000


async def test_a_text_is_no_frame(job: Job) -> None:
    async with met(job) as (client, _):
        client.say("O{}")
        problem = await problem_of(client)
        assert "binary" in problem.why


async def test_what_an_agent_may_not_send(job: Job) -> None:
    async with met(job) as (client, agent):
        agent.send(LS)
        problem = await problem_of(client)
        assert problem.code == "bad_input"


@pytest.mark.parametrize("first", [b"", b"D123", b"O{}", s.end_frame(), b"O" + b"[" * 50_000])
async def test_what_opens_nothing_never_reaches_an_agent(job: Job, first: bytes) -> None:
    async with job.client() as client:
        await client.accepted()
        client.send(first)
        problem = await problem_of(client)
        assert problem.code == "bad_input"
        assert not job.open


async def test_who_says_nothing_is_not_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OPEN_SECONDS", 0.01)
    async with job.client() as client:
        await client.accepted()
        problem = await problem_of(client)
        assert problem.code == "timed_out"


async def test_a_refusal_comes_before_the_socket(app: App) -> None:
    await app.ended()
    async with SocketClient(app.api, PATH, ASKING) as client:
        status, problem = await client.refusal()
        assert (status, problem["code"]) == (409, "conflict")
        assert problem["fix"]


async def test_another_sites_page_opens_no_session(job: Job) -> None:
    async with SocketClient(job.app.api, PATH, {**ASKING, "origin": "https://elsewhere.example"}) as client:
        assert await client.status() == 403


@pytest.mark.parametrize(
    ("change", "headers", "status"),
    [
        ({}, None, 401),
        ({}, {"authorization": "Bearer x"}, 401),
        ({"attempt": "att-other"}, {}, 401),
        ({}, {"origin": "http://127.0.0.1"}, 403),
        ({}, {}, 404),
        ({"session": "x" * 65}, {}, 422),
    ],
)
async def test_who_may_not_come(job: Job, change: dict[str, str], headers: dict[str, str] | None, status: int) -> None:
    """The last but one is a session that nobody has asked for, or that is over."""
    path = replace(job, attempt=change.get("attempt", job.attempt)).line(change.get("session", "ses-1"))
    sent = {} if headers is None else {**job.headers, **headers}
    async with SocketClient(job.agents_api, path, sent) as agent:
        assert await agent.status() == status


async def test_a_client_that_takes_nothing_is_let_go(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "SEND_SECONDS", 0.05)
    async with job.client(room=1) as client:
        await client.accepted()
        client.send(LS)
        await job.asked()
        async with job.agent(await job.asked()) as agent:
            await agent.accepted()
            await agent.received()
            for _ in range(5):
                agent.send(s.data_frame(b"x"))
            assert await closed(agent) == 1000


async def test_an_agent_that_takes_nothing_is_reported_to_the_client(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(relay, "LAST_FRAMES_SECONDS", 0.05)
    async with waiting(job) as client, job.agent(await job.asked(), room=1) as agent:
        await agent.accepted()
        assert await agent.received() == LS
        for _ in range(3):
            client.send(s.data_frame(b"x"))
        problem = await problem_of(client)
        assert (problem.code, problem.status) == ("unreachable", 503)
        assert await closed(client) == 1000


async def test_an_agent_that_takes_no_opening_is_reported_to_the_client(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: relay.SocketConnection, frame: bytes) -> None:
        if frame == LS:
            raise relay.ConnectionLost("closed")
        await send(self, frame)

    send = relay.SocketConnection.send
    monkeypatch.setattr(relay.SocketConnection, "send", fail)
    async with waiting(job) as client, job.agent(await job.asked()) as agent:
        await agent.accepted()
        assert (await problem_of(client)).code == "unreachable"


class ClosedAgent:
    """An agent that takes no more frames; those that it sent before arrive a moment later."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = list(frames)

    async def send(self, frame: bytes) -> None:
        raise relay.ConnectionLost("closed")

    async def receive(self) -> bytes | None:
        for _ in range(10):
            await asyncio.sleep(0)
        return self.frames.pop(0) if self.frames else None


class TypingClient:
    """A client that sends without end."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    async def send(self, frame: bytes) -> None:
        self.received.append(frame)

    async def receive(self) -> bytes | None:
        await asyncio.sleep(0)
        return s.data_frame(b"typed")


async def test_what_an_agent_sent_before_it_went_still_arrives() -> None:
    client, frames = TypingClient(), [s.data_frame(b"out"), s.over_frame(s.Over(code=3))]
    await relay.relay_frames(client, ClosedAgent(*frames))
    assert client.received == frames
    with pytest.raises(Unreachable, match="connection to the job's machine was lost"):
        await relay.relay_frames(client, ClosedAgent(s.data_frame(b"out")))


async def test_a_token_that_ends_takes_its_session_along(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(socket: object) -> None:
        await job.asked()

    monkeypatch.setattr(sessions, "until_access_ends", at_once)
    async with job.client() as client:
        await client.accepted()
        client.send(LS)
        problem = await problem_of(client)
        assert problem.code == "not_allowed"
        assert not job.open
