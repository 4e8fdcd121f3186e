"""The agents' listener: secrets, long polls, messages and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from tests.server.fake_control import ATTEMPT, KEY, MACHINE, FakeControl

from crucible.server.agents import build_agents_api
from crucible.wire.desired import Desired, decode_desired
from crucible.wire.messages import Batch, Kind, Message, derive_secret, encode_batch

SECRET = derive_secret(KEY, "attempt", ATTEMPT)
AS_RUNNER = {"Authorization": f"Bearer {SECRET.decode()}"}
AS_HOST = {"Authorization": f"Bearer {derive_secret(KEY, 'machine', MACHINE).decode()}"}
RANK = f"/agent/v1/attempts/{ATTEMPT}/0"
SHA = hashlib.sha256(b"data").hexdigest()


def batch(*numbers: int, attempt: str = ATTEMPT) -> bytes:
    messages = tuple(Message(n, Kind.NOTE, 1.0, {"text": str(n)}) for n in numbers)
    return encode_batch(Batch(attempt, 0, messages), derive_secret(KEY, "attempt", attempt))


async def test_every_route_but_the_claim_needs_a_secret(agents_api: FastAPI, agent: httpx2.AsyncClient) -> None:
    walked = 0
    for context in iter_route_contexts(agents_api.routes):
        path = str(context.path)
        if path == "/agent/v1/claim":
            continue
        for method in context.methods or ():
            url = re.sub(r"\{(rank|n)\}", "0", path).replace("{sha256}", SHA)
            url = re.sub(r"\{[^}]*\}", "abc", url)
            query = {"attempt": ATTEMPT, "start": "0", "lines": "0"}
            answer = await agent.request(method, url, params=query, headers={"X-Content-SHA256": SHA})
            assert answer.status_code == 401, f"{method} {path}"
            assert answer.headers["Content-Type"] == "application/problem+json"
            walked += 1
    assert walked == 10


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (f"/agent/v1/machines/{MACHINE}/desired", AS_RUNNER),
        (f"{RANK}/desired", AS_HOST),
        ("/agent/v1/machines/mch-other/desired", AS_HOST),
        ("/agent/v1/attempts/att-other/0/desired", AS_RUNNER),
        (f"/agent/v1/bundles/{SHA}?attempt=att-other", AS_RUNNER),
    ],
)
async def test_a_secret_opens_its_own_door_alone(agent: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
    assert (await agent.get(url, headers=headers)).status_code == 401


async def test_pages_are_refused(agent: httpx2.AsyncClient) -> None:
    answer = await agent.get(f"{RANK}/desired", headers={**AS_RUNNER, "Origin": "http://127.0.0.1"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("nonce", "native_id", "status"),
    [("right", "first", 200), ("wrong", "first", 401), ("right", "second", 409), ("right", "late", 410)],
)
async def test_a_claim(agent: httpx2.AsyncClient, nonce: str, native_id: str, status: int) -> None:
    body = {"machine": MACHINE, "nonce": nonce, "native_id": native_id}
    answer = await agent.post("/agent/v1/claim", json=body)
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == {"secret": AS_HOST["Authorization"].removeprefix("Bearer ")}


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


async def test_the_desired_document(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.wanted = Desired(MACHINE, 5)
    answer = await agent.get(f"/agent/v1/machines/{MACHINE}/desired?version=4", headers=AS_HOST)
    assert decode_desired(answer.content) == control.wanted
    assert answer.headers["ETag"] == '"5"'


async def test_a_known_document_is_not_sent_again(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.wanted = Desired(MACHINE, 5)
    answer = await agent.get(f"/agent/v1/machines/{MACHINE}/desired?version=5&wait=30", headers=AS_HOST)
    assert (answer.status_code, answer.content) == (304, b"")
    assert control.asked[-1]["wait"] == 30


async def test_devices_come_along(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    headers = {**AS_HOST, "X-Crucible-Devices": json.dumps({"cpus": 8})}
    await agent.get(f"/agent/v1/machines/{MACHINE}/desired", headers=headers)
    assert control.asked[-1]["devices"] == {"cpus": 8}


@pytest.mark.parametrize("devices", ["{", "[]", "7", "x" * 20_000])
async def test_devices_that_are_no_object_are_refused(agent: httpx2.AsyncClient, devices: str) -> None:
    headers = {**AS_HOST, "X-Crucible-Devices": devices}
    answer = await agent.get(f"/agent/v1/machines/{MACHINE}/desired", headers=headers)
    assert answer.status_code == 422


@pytest.mark.parametrize("query", ["wait=31", "wait=-1", "wait=nan", "version=x", "version=-2"])
async def test_a_poll_out_of_bounds_is_refused(agent: httpx2.AsyncClient, query: str) -> None:
    answer = await agent.get(f"/agent/v1/machines/{MACHINE}/desired?{query}", headers=AS_HOST)
    assert answer.status_code == 422


async def test_a_poll_waits_without_keeping_others_waiting(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    url = f"/agent/v1/machines/{MACHINE}/desired?wait=30"
    polls = [asyncio.create_task(agent.get(url, headers=AS_HOST)) for _ in range(50)]
    assert (await agent.get(f"{RANK}/desired", headers=AS_RUNNER)).status_code == 304
    control.wanted = Desired(MACHINE, 1)
    control.released.set()
    async with asyncio.timeout(5):
        assert {answer.status_code for answer in await asyncio.gather(*polls)} == {200}


async def test_a_poll_is_answered_when_the_server_closes(control: FakeControl) -> None:
    closing = asyncio.Event()
    transport = httpx2.ASGITransport(build_agents_api(control, closing))
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as agent,
        asyncio.timeout(5),
    ):
        url = f"/agent/v1/machines/{MACHINE}/desired?wait=30"
        poll = asyncio.create_task(agent.get(url, headers=AS_HOST))
        while not control.asked:
            await asyncio.sleep(0)
        closing.set()
        assert (await poll).status_code == 304


async def test_what_is_wanted_of_a_runner(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.wanted_of_attempt = {"stop": True, "checkpoint": 2, "settled": False}
    answer = await agent.get(f"{RANK}/desired?stop=0&checkpoint=1&wait=9", headers=AS_RUNNER)
    assert answer.json() == control.wanted_of_attempt
    assert control.asked == [{"rank": 0, "stop": False, "checkpoint": 1, "wait": 9, "sessions": None}]


async def test_messages_are_acknowledged(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await agent.post(f"{RANK}/messages", content=batch(1, 2, 3), headers=AS_RUNNER)
    assert (answer.status_code, answer.json()) == (200, {"acked": 3})
    assert [message.n for message in control.batches[0].messages] == [1, 2, 3]


async def test_a_gap_says_from_where_to_send_again(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.acked = 7
    answer = await agent.post(f"{RANK}/messages", content=batch(9), headers=AS_RUNNER)
    assert (answer.status_code, answer.json()["acked"]) == (409, 7)
    assert control.batches == []


@pytest.mark.parametrize("raw", [b"", b"nonsense", batch(1)[:-1], b"0" + batch(1)[1:]])
async def test_a_batch_with_a_bad_signature_is_refused(agent: httpx2.AsyncClient, raw: bytes) -> None:
    answer = await agent.post(f"{RANK}/messages", content=raw, headers=AS_RUNNER)
    assert (answer.status_code, answer.json()["code"]) == (400, "broken_request")


async def test_an_unknown_attempt_is_gone(agent: httpx2.AsyncClient) -> None:
    secret = derive_secret(KEY, "attempt", "att-x").decode()
    headers = {"Authorization": f"Bearer {secret}"}
    answer = await agent.post("/agent/v1/attempts/att-x/0/messages", content=batch(1, attempt="att-x"), headers=headers)
    assert answer.status_code == 410


async def test_a_batch_has_its_limit(agent: httpx2.AsyncClient) -> None:
    answer = await agent.post(f"{RANK}/messages", content=b"x" * (4 * 1024**2 + 1), headers=AS_RUNNER)
    assert answer.status_code == 413


async def test_a_log_segment_is_stored(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    headers = {**AS_RUNNER, "X-Content-SHA256": SHA}
    answer = await agent.put(f"{RANK}/logs/3?start=10&lines=1", content=b"data", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert control.uploads == {"log/0/3@10+1": b"data"}


@pytest.mark.parametrize(
    ("query", "sha", "size", "status"),
    [
        ("start=0&lines=0", SHA, 1024**2 + 1, 413),
        ("start=-1&lines=0", SHA, 1, 422),
        ("lines=0", SHA, 1, 422),
        ("start=0&lines=0", "short", 1, 422),
    ],
)
async def test_a_log_segment_out_of_bounds_is_refused(
    agent: httpx2.AsyncClient, control: FakeControl, query: str, sha: str, size: int, status: int
) -> None:
    headers = {**AS_RUNNER, "X-Content-SHA256": sha}
    answer = await agent.put(f"{RANK}/logs/0?{query}", content=b"x" * size, headers=headers)
    assert answer.status_code == status
    assert control.uploads == {}


async def test_a_tail_is_shown(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await agent.post(f"{RANK}/tail?start=4", content=b"new", headers=AS_RUNNER)
    assert answer.status_code == 204
    assert control.uploads == {"tail@4": b"new"}
    answer = await agent.post(f"{RANK}/tail?start=4", content=b"x" * 65_537, headers=AS_RUNNER)
    assert answer.status_code == 413


async def test_an_artifact_larger_than_any_other_body_streams(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b"x" * 1024**2

    headers = {**AS_RUNNER, "X-Content-SHA256": SHA}
    answer = await agent.put(f"{RANK}/artifacts/out/model%20a.bin", content=pieces(), headers=headers)
    assert answer.status_code == 204
    assert len(control.uploads["artifact/out/model a.bin"]) == 9 * 1024**2


async def test_a_checkpoint_larger_than_any_other_body_streams(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(9):
            yield bytes([number]) * 1024**2

    url = f"{RANK}/checkpoints/{SHA}"
    answer = await agent.put(url, content=pieces(), headers=AS_RUNNER)
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(control.uploads[f"checkpoint/0/{SHA}"]) == 9 * 1024**2


async def test_a_checkpoint_comes_whole_or_in_ranges(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.uploads[f"checkpoint/0/{SHA}"] = b"data"
    url = f"{RANK}/checkpoints/{SHA}"
    assert (await agent.get(url, headers=AS_RUNNER)).content == b"data"
    answer = await agent.get(url, headers={**AS_RUNNER, "Range": "bytes=2-"})
    assert (answer.status_code, answer.content) == (206, b"ta")


async def test_a_checkpoint_is_named_by_its_hash(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    assert (await agent.put(f"{RANK}/checkpoints/last.pt", content=b"x", headers=AS_RUNNER)).status_code == 422
    assert (await agent.get(f"{RANK}/checkpoints/{SHA}", headers=AS_RUNNER)).status_code == 404
    assert control.uploads == {}


@pytest.mark.parametrize("path", ["..%2fkey", "a%2f..%2fb", "/etc/passwd", "a%00b", "a//b", "%5c%5chost"])
async def test_an_artifact_stays_in_its_folder(agent: httpx2.AsyncClient, control: FakeControl, path: str) -> None:
    headers = {**AS_RUNNER, "X-Content-SHA256": SHA}
    url = httpx2.URL("http://127.0.0.1").copy_with(raw_path=f"{RANK}/artifacts/{path}".encode())
    answer = await agent.put(url, content=b"x", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert control.uploads == {}


async def test_a_bundle_comes_whole_or_in_ranges(agent: httpx2.AsyncClient, control: FakeControl) -> None:
    control.stored[SHA] = b"data"
    url = f"/agent/v1/bundles/{SHA}?attempt={ATTEMPT}"
    assert (await agent.get(url, headers=AS_RUNNER)).content == b"data"
    answer = await agent.get(url, headers={**AS_RUNNER, "Range": "bytes=2-"})
    assert (answer.status_code, answer.content) == (206, b"ta")


async def test_the_public_api_is_not_here(agent: httpx2.AsyncClient) -> None:
    for path in ("/api/v1/jobs", "/healthz", "/openapi.json", "/docs"):
        assert (await agent.get(path)).status_code == 404
