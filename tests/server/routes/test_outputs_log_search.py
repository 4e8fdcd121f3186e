"""Searching output over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.server.app import App
from tests.server.conftest import TOKEN

PATH = "/api/v1/jobs/last/logs/search"
FIRST, SECOND = b"Loss nan\na+\nloss nan\n", b"x\nA+\nb\nloss nan\n"


@pytest.fixture(autouse=True)
async def job(app: App) -> str:
    return await app.ended(FIRST, SECOND)


async def lines(client: httpx2.AsyncClient, query: str) -> list[tuple[int, int]]:
    """The attempt and the number of each line that is found."""
    return [(hit["attempt"], hit["line"]) for hit in (await client.get(f"{PATH}?{query}")).json()["items"]]


async def test_a_search_has_defaults(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{PATH}?q=loss%20nan")
    first, second = answer.json()["items"]
    assert (first["attempt"], first["line"], first["offset"], first["text"]) == (1, 3, 12, "loss nan")
    assert (first["before"], first["after"], second["attempt"]) == ([], [], 2)
    assert (answer.json()["next"], answer.json()["complete"]) == (None, True)
    assert await lines(client, "q=a%2B") == [(1, 2)]


async def test_a_search_follows_its_options(client: httpx2.AsyncClient) -> None:
    assert await lines(client, "q=a%5C%2B&regex=true") == [(1, 2)]
    assert await lines(client, "q=a%2B&case=false") == [(1, 2), (2, 2)]
    assert await lines(client, "q=loss&attempt=2") == [(2, 4)]
    [hit] = (await client.get(f"{PATH}?q=A%2B&context=1")).json()["items"]
    assert (hit["before"], hit["after"]) == (["x"], ["b"])
    page = (await client.get(f"{PATH}?q=loss&limit=1")).json()
    assert len(page["items"]) == 1
    assert await lines(client, f"q=loss&cursor={page['next']}") == [(2, 4)]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "q=",
        "q=" + "x" * 1001,
        "q=%00",
        "q=a%0Ab",
        "q=a&regex=perhaps",
        "q=a&case=7",
        "q=a&attempt=0",
        "q=a&attempt=x",
        "q=a&context=-1",
        "q=a&context=11",
        "q=a&limit=0",
        "q=a&limit=1001",
        "q=a&cursor=",
        "q=a&cursor=" + "c" * 201,
    ],
)
async def test_bad_input_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"{PATH}?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["fix"]


async def test_a_job_that_is_not_there(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/v1/jobs/nobody/logs/search?q=a")).status_code == 404


async def test_who_goes_away_ends_the_search(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    async def never(lane: str, work: object, deadline: float) -> None:
        found.append(lane)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            found.append("cancelled")
            raise

    monkeypatch.setattr(app.harness.calls, "run", never)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"q=a",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {TOKEN}".encode())],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 5000),
        "state": {},
    }
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def send(message: Any) -> None:
        return None

    running = asyncio.create_task(app.api(scope, messages.get, send))
    while not found:
        await asyncio.sleep(0)
    messages.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(running, 5)
    assert found == ["search", "cancelled"]
