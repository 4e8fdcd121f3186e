"""The server about itself, and its description."""

from __future__ import annotations

import os
from typing import Any

import httpx2
from fastapi import FastAPI
from tests.server.conftest import Stops
from tests.server.fake_control import FakeControl
from tests.server.test_auth import OPEN

from crucible.server.api import describe


async def test_health(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/healthz")).json() == {"ok": True, "nonce": "n-1", "version": "1.2.3"}


async def test_ready(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/readyz")
    assert answer.json() == {"ready": True, "nonce": "n-1", "version": "1.2.3", "deployment": "dep-1"}


async def test_not_ready_yet(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.is_ready = False
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)


async def test_what_the_server_is(http: httpx2.AsyncClient) -> None:
    found = (await http.get("/api/v1/server", headers={"Host": "localhost:81"})).json()
    assert found.pop("started_at").endswith("Z")
    assert found == {
        "version": "1.2.3",
        "api": 1,
        "deployment": "dep-1",
        "pid": os.getpid(),
        "url": "http://localhost:81",
        "agents_url": "http://127.0.0.1:2",
        "home": "/home/me/.crucible",
        "running": 1,
        "queued": 0,
        "billing": 0,
    }


async def test_stop_is_answered_first(http: httpx2.AsyncClient, stops: Stops) -> None:
    assert (await http.post("/api/v1/server/stop")).status_code == 202
    assert stops.count == 1


async def test_stop_is_no_get(http: httpx2.AsyncClient, stops: Stops) -> None:
    assert (await http.get("/api/v1/server/stop")).status_code == 405
    assert stops.count == 0


async def test_places(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/v1/backends")).json()["items"][0]["name"] == "local"
    assert (await http.get("/api/v1/machines")).json()["items"][0]["id"].startswith("mch-")
    tiers = (await http.get("/api/v1/tiers")).json()["items"]
    assert {"CPU_SMALL", "GPU_LARGE"} <= {tier["id"] for tier in tiers}


async def test_the_schema_of_a_job(http: httpx2.AsyncClient) -> None:
    schema = (await http.get("/api/v1/schema/job")).json()
    assert schema["required"] == ["command"]
    assert "resources" in schema["properties"]


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, item[method]) for path, item in document["paths"].items() for method in item]


def test_every_operation_documents_its_problems(api: FastAPI) -> None:
    found = operations(describe(api))
    assert len(found) >= 18
    for path, operation in found:
        for status in ("401", "422", "500"):
            content = operation["responses"][status]["content"]
            schema = content["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, f"{path} {status}"
        assert operation["description"], path


def test_the_description_says_what_needs_the_token(api: FastAPI) -> None:
    for path, operation in operations(describe(api)):
        wanted = [] if path in OPEN else [{"token": []}]
        assert operation["security"] == wanted, path


async def test_the_description_is_served(http: httpx2.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document["info"] == {"title": "Crucible", "version": "1.2.3"}
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
