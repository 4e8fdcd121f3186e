"""The agents' listener: secrets, long polls, messages and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts
from tests.control.harness import FakeRunner, pieces, secret, sha
from tests.server.app import App
from tests.server.asgi import SocketClient

from crucible.control.db import schema as t
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.core.people.identity import OWNER
from crucible.server.agents.api import build_agents_api
from crucible.server.http.connections import ACCEPT
from crucible.storage.layout import agent_key, checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.desired import decode_desired
from crucible.wire.documents.messages import Batch, Message, MessageKind, encode_batch

SHA = hashlib.sha256(b"data").hexdigest()
OTHER = b"the code of another job"
MiB = 1024**2


@dataclass(frozen=True)
class Agent:
    """A job's process runs on a machine; `rank` is the path of its runner."""

    app: App
    job: str
    machine: str
    runner: FakeRunner

    @property
    def attempt(self) -> str:
        return self.runner.attempt

    @property
    def rank(self) -> str:
        return f"/agent/v1/attempts/{self.attempt}/0"

    @property
    def as_runner(self) -> dict[str, str]:
        return bearer("attempt", self.attempt)

    @property
    def as_host(self) -> dict[str, str]:
        return bearer("machine", self.machine)

    @property
    def desired(self) -> str:
        return f"/agent/v1/machines/{self.machine}/desired"

    def stored(self) -> dict[str, bytes]:
        store = self.app.harness.ports.store
        return {key: b"".join(store.open_range(key, 0, size)) for key, size in store.list("") if size}

    async def acked(self) -> int:
        (slot,) = await self.app.harness.rows(t.slots)
        return int(slot["acked"])

    def notes(self, count: int) -> bytes:
        return self.runner.encoded([self.runner.message(MessageKind.NOTE, text=str(n)) for n in range(count)])


def bearer(purpose: str, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(purpose, name).decode()}"}


@pytest.fixture
async def running(app: App) -> Agent:
    job, runner = await app.harness.running()
    return Agent(app, job, (await app.harness.machine()).id, runner)


async def test_every_other_route_needs_a_secret(app: App, agent: httpx2.AsyncClient) -> None:
    walked = 0
    for context in iter_route_contexts(build_agents_api(app.control.agents).routes):
        path = str(context.path)
        if path in ("/agent/v1/claim", "/agent/v1/agent-{sha256}.pyz"):
            continue
        for method in context.methods or ():
            url = re.sub(r"\{(rank|n)\}", "0", path).replace("{sha256}", SHA)
            url = re.sub(r"\{[^}]*\}", "abc", url)
            query = {"attempt": "att-other", "start": "0", "lines": "0"}
            answer = await agent.request(method, url, params=query, headers={"X-Content-SHA256": SHA})
            assert answer.status_code == 401, f"{method} {path}"
            assert answer.headers["Content-Type"] == "application/problem+json"
            walked += 1
    assert walked == 10


async def test_the_agent_file_is_for_everyone_and_its_connection_stays_unauthenticated(app: App) -> None:
    accepted: list[None] = []
    api = build_agents_api(app.control.agents)

    async def listener(scope: Any, receive: Any, send: Any) -> None:
        await api({**scope, ACCEPT: lambda: accepted.append(None)}, receive, send)

    app.harness.ports.store.put(agent_key(SHA), b"an agent")
    url = f"/agent/v1/agent-{SHA}.pyz"
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(listener), base_url="http://127.0.0.1") as machine:
        answer = await machine.get(url)
        assert (answer.status_code, answer.content) == (200, b"an agent")
        part = await machine.get(url, headers={"Range": "bytes=3-4"})
        assert (part.status_code, part.content) == (206, b"ag")
        assert (await machine.get(f"/agent/v1/agent-{'0' * 64}.pyz")).status_code == 404
        for name in ("agent-.pyz", "agent-x.pyz", f"agent-{SHA}", f"agent-{SHA.upper()}.pyz", f"agent-{SHA}..pyz"):
            assert (await machine.get(f"/agent/v1/{name}")).status_code in (404, 422), name
        assert (await machine.put(url)).status_code == 405
        assert (await machine.get(url, headers={"Origin": "http://127.0.0.1"})).status_code == 403
    assert accepted == []


async def test_a_secret_opens_its_own_door_alone(running: Agent, agent: httpx2.AsyncClient) -> None:
    for url, headers in (
        (running.desired, running.as_runner),
        (f"{running.rank}/desired", running.as_host),
        ("/agent/v1/machines/mch-other/desired", running.as_host),
        ("/agent/v1/attempts/att-other/0/desired", running.as_runner),
        (f"/agent/v1/bundles/{SHA}?attempt=att-other", running.as_runner),
    ):
        assert (await agent.get(url, headers=headers)).status_code == 401, url


async def test_pages_are_refused(running: Agent, agent: httpx2.AsyncClient) -> None:
    headers = {**running.as_runner, "Origin": "http://127.0.0.1"}
    assert (await agent.get(f"{running.rank}/desired", headers=headers)).status_code == 403


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:4000", True),
        ("localhost", True),
        ("agents.example:443", True),
        ("rebound.example", False),
        ("", False),
    ],
)
async def test_it_answers_to_its_own_names(running: Agent, host: str, is_own: bool) -> None:
    api = build_agents_api(running.app.control.agents, hosts=frozenset({"agents.example"}))
    headers = {**running.as_runner, "host": host}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(api), base_url="http://127.0.0.1") as agent:
        assert (await agent.get(f"{running.rank}/desired", headers=headers)).status_code == (304 if is_own else 403)
        assert (await agent.get("/nowhere", headers=headers)).status_code == (404 if is_own else 403)
    async with SocketClient(api, f"{running.rank}/sessions/ses-1", headers) as socket:
        status, _ = await socket.refusal()
        assert status == (404 if is_own else 403)


async def test_a_claim(app: App, agent: httpx2.AsyncClient) -> None:
    await app.harness.submit()
    await app.harness.performer.perform_due()
    machine = (await app.harness.machine()).id
    answer = await agent.post("/agent/v1/claim", json=claim_of(machine))
    assert (answer.status_code, answer.json()) == (200, {"secret": secret("machine", machine).decode()})


@pytest.mark.parametrize(
    ("wrong", "status"), [({}, 409), ({"nonce": "wrong"}, 401), ({"native_id": "second"}, 409)], ids=repr
)
async def test_a_claim_after_the_host_has_made_contact(
    running: Agent, agent: httpx2.AsyncClient, wrong: dict[str, str], status: int
) -> None:
    answer = await agent.post("/agent/v1/claim", json={**claim_of(running.machine), **wrong})
    assert answer.status_code == status
    assert "secret" not in answer.json()


def claim_of(machine: str) -> dict[str, str]:
    return {"machine": machine, "nonce": secret("nonce", machine).decode(), "native_id": f"i-{machine}"}


async def test_a_claim_of_a_machine_that_is_not_wanted_any_more(running: Agent, agent: httpx2.AsyncClient) -> None:
    machine = running.machine
    await running.app.control.machines.terminate(OWNER, machine)
    body = {"machine": machine, "nonce": secret("nonce", machine).decode(), "native_id": f"i-{machine}"}
    assert (await agent.post("/agent/v1/claim", json=body)).status_code == 410


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"machine": "", "nonce": "n", "native_id": "i"},
        {"machine": "m", "nonce": "é", "native_id": "i"},
        [],
    ],
)
async def test_a_claim_that_is_none(agent: httpx2.AsyncClient, body: object) -> None:
    assert (await agent.post("/agent/v1/claim", json=body)).status_code == 422


async def test_the_desired_document(running: Agent, agent: httpx2.AsyncClient) -> None:
    answer = await agent.get(f"{running.desired}?version=0", headers=running.as_host)
    wanted = await running.app.control.agents.read_desired(running.machine)
    assert decode_desired(answer.content) == wanted
    assert [one.attempt for one in wanted.assignments] == [running.attempt]
    assert answer.headers["ETag"] == f'"{wanted.version}"'


async def test_a_known_document_is_not_sent_again(running: Agent, agent: httpx2.AsyncClient) -> None:
    version = (await running.app.control.agents.read_desired(running.machine)).version
    answer = await agent.get(f"{running.desired}?version={version}&wait=0.01", headers=running.as_host)
    assert (answer.status_code, answer.content) == (304, b"")


async def test_devices_come_along(running: Agent, agent: httpx2.AsyncClient) -> None:
    headers = {**running.as_host, "X-Crucible-Devices": json.dumps({"cpus": 8})}
    assert (await agent.get(running.desired, headers=headers)).status_code == 200


@pytest.mark.parametrize("devices", ["{", "[]", "7", "x" * 20_000])
async def test_devices_that_are_no_object_are_refused(running: Agent, agent: httpx2.AsyncClient, devices: str) -> None:
    headers = {**running.as_host, "X-Crucible-Devices": devices}
    assert (await agent.get(running.desired, headers=headers)).status_code == 422


@pytest.mark.parametrize("query", ["wait=31", "wait=-1", "wait=nan", "version=x", "version=-2"])
async def test_a_poll_out_of_bounds_is_refused(running: Agent, agent: httpx2.AsyncClient, query: str) -> None:
    assert (await agent.get(f"{running.desired}?{query}", headers=running.as_host)).status_code == 422


async def until_polled(running: Agent, times: int = 1) -> None:
    """Until so many wait for news of the machine."""
    wakeups = running.app.harness.ports.wakeups
    assert isinstance(wakeups, LocalWakeups)
    async with asyncio.timeout(5):
        while len(wakeups._listeners.get(f"machine:{running.machine}", ())) < times:
            await asyncio.sleep(0)


async def test_a_poll_waits_without_keeping_others_waiting(running: Agent, agent: httpx2.AsyncClient) -> None:
    version = (await running.app.control.agents.read_desired(running.machine)).version
    url = f"{running.desired}?version={version}&wait=30"
    polls = [asyncio.create_task(agent.get(url, headers=running.as_host)) for _ in range(50)]
    await until_polled(running, 50)
    assert (await agent.get(f"{running.rank}/desired", headers=running.as_runner)).status_code == 304
    assert not any(poll.done() for poll in polls)
    await running.app.harness.submit()
    async with asyncio.timeout(5):
        assert {answer.status_code for answer in await asyncio.gather(*polls)} == {200}


async def test_a_poll_is_answered_when_the_server_closes(running: Agent) -> None:
    closing = asyncio.Event()
    version = (await running.app.control.agents.read_desired(running.machine)).version
    transport = httpx2.ASGITransport(build_agents_api(running.app.control.agents, closing))
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as agent,
        asyncio.timeout(5),
    ):
        url = f"{running.desired}?version={version}&wait=30"
        poll = asyncio.create_task(agent.get(url, headers=running.as_host))
        await until_polled(running)
        closing.set()
        assert (await poll).status_code == 304


async def test_what_is_wanted_of_a_runner(running: Agent, agent: httpx2.AsyncClient) -> None:
    await running.app.control.checkpoints.request(OWNER, running.job)
    await running.app.control.jobs.cancel(OWNER, running.job)
    url = f"{running.rank}/desired"
    answer = await agent.get(f"{url}?stop=0&checkpoint=0&wait=9", headers=running.as_runner)
    assert answer.json() == {"stop": True, "settled": False, "checkpoint": 1}
    assert (await agent.get(f"{url}?stop=1&checkpoint=1", headers=running.as_runner)).status_code == 304


async def test_messages_are_acknowledged(running: Agent, agent: httpx2.AsyncClient) -> None:
    known = await running.acked()
    answer = await agent.post(f"{running.rank}/messages", content=running.notes(3), headers=running.as_runner)
    assert (answer.status_code, answer.json()) == (200, {"acked": known + 3})
    assert await running.acked() == known + 3


async def test_a_gap_says_from_where_to_send_again(running: Agent, agent: httpx2.AsyncClient) -> None:
    known = await running.acked()
    running.runner.n += 5
    answer = await agent.post(f"{running.rank}/messages", content=running.notes(1), headers=running.as_runner)
    assert (answer.status_code, answer.json()["acked"]) == (409, known)
    assert await running.acked() == known


@pytest.mark.parametrize("spoil", ["empty", "nonsense", "cut off", "changed"])
async def test_a_batch_with_a_bad_signature_is_refused(running: Agent, agent: httpx2.AsyncClient, spoil: str) -> None:
    good = running.notes(1)
    raw = {"empty": b"", "nonsense": b"nonsense", "cut off": good[:-1], "changed": b"0" + good[1:]}[spoil]
    answer = await agent.post(f"{running.rank}/messages", content=raw, headers=running.as_runner)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_batch")


async def test_an_unknown_attempt_is_gone(agent: httpx2.AsyncClient) -> None:
    batch = Batch("att-x", 0, (Message(1, MessageKind.NOTE, 1.0, {"text": "1"}),))
    raw = encode_batch(batch, secret("attempt", "att-x"))
    answer = await agent.post("/agent/v1/attempts/att-x/0/messages", content=raw, headers=bearer("attempt", "att-x"))
    assert answer.status_code == 410


async def test_a_batch_has_its_limit(running: Agent, agent: httpx2.AsyncClient) -> None:
    answer = await agent.post(f"{running.rank}/messages", content=b"x" * (4 * MiB + 1), headers=running.as_runner)
    assert answer.status_code == 413


async def test_a_log_segment_is_stored(running: Agent, agent: httpx2.AsyncClient) -> None:
    headers = {**running.as_runner, "X-Content-SHA256": SHA}
    answer = await agent.put(f"{running.rank}/logs/3?start=10&lines=1", content=b"data", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert running.stored() == {log_segment_key(running.job, running.attempt, 0, 3, SHA): b"data"}
    assert running.app.harness.tails.read(running.attempt, 10, 100) == b"data"


@pytest.mark.parametrize(
    ("query", "sha", "size", "status"),
    [
        ("start=0&lines=0", SHA, MiB + 1, 413),
        ("start=-1&lines=0", SHA, 1, 422),
        ("lines=0", SHA, 1, 422),
        ("start=0&lines=0", "short", 1, 422),
    ],
)
async def test_a_log_segment_out_of_bounds_is_refused(
    running: Agent, agent: httpx2.AsyncClient, query: str, sha: str, size: int, status: int
) -> None:
    headers = {**running.as_runner, "X-Content-SHA256": sha}
    answer = await agent.put(f"{running.rank}/logs/0?{query}", content=b"x" * size, headers=headers)
    assert answer.status_code == status
    assert running.stored() == {}


async def test_a_tail_is_shown(running: Agent, agent: httpx2.AsyncClient) -> None:
    answer = await agent.post(f"{running.rank}/tail?start=4", content=b"new", headers=running.as_runner)
    assert answer.status_code == 204
    assert running.app.harness.tails.read(running.attempt, 4, 100) == b"new"
    answer = await agent.post(f"{running.rank}/tail?start=4", content=b"x" * 65_537, headers=running.as_runner)
    assert answer.status_code == 413


async def blocks() -> AsyncIterator[bytes]:
    """More than any body may have that does not stream."""
    for number in range(9):
        yield bytes([number]) * MiB


LARGE = b"".join(bytes([number]) * MiB for number in range(9))


async def test_an_artifact_larger_than_any_other_body_streams(running: Agent, agent: httpx2.AsyncClient) -> None:
    headers = {**running.as_runner, "X-Content-SHA256": sha(LARGE)}
    answer = await agent.put(f"{running.rank}/artifacts/out/model%20a.bin", content=blocks(), headers=headers)
    assert answer.status_code == 204
    assert running.stored() == {output_key(running.job, running.attempt, sha(LARGE)): LARGE}


async def test_a_checkpoint_larger_than_any_other_body_streams(running: Agent, agent: httpx2.AsyncClient) -> None:
    url = f"{running.rank}/checkpoints/{sha(LARGE)}"
    answer = await agent.put(url, content=blocks(), headers=running.as_runner)
    assert (answer.status_code, answer.content) == (204, b"")
    assert running.stored() == {checkpoint_key(running.job, sha(LARGE)): LARGE}


async def test_a_checkpoint_comes_whole_or_in_ranges(app: App, agent: httpx2.AsyncClient) -> None:
    _, earlier = await app.harness.running()
    await earlier.checkpoint(b"data", 1)
    (saved,) = await app.harness.rows(t.checkpoints)
    _, runner = await app.harness.running(resume_from=saved["id"])
    url, headers = f"/agent/v1/attempts/{runner.attempt}/0/checkpoints/{SHA}", bearer("attempt", runner.attempt)
    assert (await agent.get(url, headers=headers)).content == b"data"
    answer = await agent.get(url, headers={**headers, "Range": "bytes=2-"})
    assert (answer.status_code, answer.content) == (206, b"ta")
    await runner.end()
    assert (await agent.get(url, headers=headers)).status_code == 410


async def test_a_checkpoint_is_named_by_its_hash(running: Agent, agent: httpx2.AsyncClient) -> None:
    url, headers = f"{running.rank}/checkpoints", running.as_runner
    assert (await agent.put(f"{url}/last.pt", content=b"x", headers=headers)).status_code == 422
    assert (await agent.put(f"{url}/{SHA}", content=b"other", headers=headers)).status_code == 422
    assert (await agent.get(f"{url}/{SHA}", headers=headers)).status_code == 404
    assert running.stored() == {}


@pytest.mark.parametrize("path", ["..%2fkey", "a%2f..%2fb", "/etc/passwd", "a%00b", "a//b", "%5c%5chost"])
async def test_an_artifact_stays_in_its_folder(running: Agent, agent: httpx2.AsyncClient, path: str) -> None:
    headers = {**running.as_runner, "X-Content-SHA256": sha(b"x")}
    url = httpx2.URL("http://127.0.0.1").copy_with(raw_path=f"{running.rank}/artifacts/{path}".encode())
    answer = await agent.put(url, content=b"x", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert running.stored() == {}


async def test_a_bundle_comes_whole_or_in_ranges(app: App, agent: httpx2.AsyncClient) -> None:
    for data in (b"data", OTHER):
        await app.control.bundles.put(OWNER, sha(data), pieces(data))
    _, runner = await app.harness.running(bundle=SHA)
    headers, query = bearer("attempt", runner.attempt), f"attempt={runner.attempt}"
    url = f"/agent/v1/bundles/{SHA}?{query}"
    assert (await agent.get(url, headers=headers)).content == b"data"
    answer = await agent.get(url, headers={**headers, "Range": "bytes=2-"})
    assert (answer.status_code, answer.content) == (206, b"ta")
    other = f"/agent/v1/bundles/{sha(OTHER)}?{query}"
    assert (await agent.get(other, headers=headers)).status_code == 404
    await runner.end()
    for ended in (url, other):
        assert (await agent.get(ended, headers=headers)).status_code == 410


async def test_an_ended_attempt_is_told_that_it_is_over(running: Agent, agent: httpx2.AsyncClient) -> None:
    last = running.runner.encoded(
        [
            running.runner.message(MessageKind.EXITED, code=0, cause="exit"),
            running.runner.message(MessageKind.ENDED),
        ]
    )
    url, headers = f"{running.rank}/messages", running.as_runner
    first = await agent.post(url, content=last, headers=headers)
    assert (await agent.post(url, content=last, headers=headers)).json() == first.json(), "a repeat is acknowledged"
    hashed = {**headers, "X-Content-SHA256": SHA}
    for late in (
        agent.post(url, content=running.notes(1), headers=headers),
        agent.put(f"{running.rank}/artifacts/model.pt", content=b"data", headers=hashed),
        agent.put(f"{running.rank}/checkpoints/{SHA}", content=b"data", headers=headers),
        agent.put(f"{running.rank}/logs/1?start=0&lines=0", content=b"data", headers=hashed),
        agent.post(f"{running.rank}/tail?start=0", content=b"data", headers=headers),
        agent.get(f"{running.rank}/secrets", headers=headers),
    ):
        answer = await late
        assert (answer.status_code, answer.json()["code"]) == (410, "attempt_gone")
        assert "has ended" in answer.text
    assert (await agent.get(f"{running.rank}/desired", headers=headers)).json()["settled"]
    assert running.stored() == {}


async def test_the_public_api_is_not_here(agent: httpx2.AsyncClient) -> None:
    for path in ("/api/v1/jobs", "/healthz", "/openapi.json", "/docs"):
        assert (await agent.get(path)).status_code == 404
