"""Searching output over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from tests.server.conftest import TOKEN
from tests.server.fake_control import JOB, FakeControl, FakeJob

PATH = f"/api/v1/jobs/{JOB}/logs/search"


@pytest.fixture(autouse=True)
def job(control: FakeControl) -> FakeJob:
    return control.add(FakeJob())


async def test_a_search_has_defaults(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.get(f"{PATH}?q=loss%20nan")
    assert answer.json()["items"][0]["text"] == "found"
    defaults = {"regex": False, "case": True, "attempt": None, "context": 0, "limit": 100, "cursor": None}
    assert control.asked == [{"text": "loss nan", **defaults}]


async def test_a_search_passes_its_wishes(http: httpx2.AsyncClient, control: FakeControl) -> None:
    await http.get(f"{PATH}?q=a%2B&regex=true&case=false&attempt=2&context=3&limit=9&cursor=c")
    wishes = {"regex": True, "case": False, "attempt": 2, "context": 3, "limit": 9, "cursor": "c"}
    assert control.asked == [{"text": "a+", **wishes}]


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
async def test_bad_input_is_refused(http: httpx2.AsyncClient, control: FakeControl, query: str) -> None:
    answer = await http.get(f"{PATH}?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["fix"]
    assert control.asked == []


async def test_a_job_that_is_not_there(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/v1/jobs/nobody/logs/search?q=a")).status_code == 404


async def test_who_goes_away_ends_the_search(api: FastAPI, control: FakeControl) -> None:
    control.searching = asyncio.Event()
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

    running = asyncio.create_task(api(scope, messages.get, send))
    while not control.asked:
        await asyncio.sleep(0)
    messages.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(running, 5)
    assert control.asked[-1] == {"cancelled": True}
