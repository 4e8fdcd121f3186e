"""The server about itself, and its description."""

from __future__ import annotations

import os
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from tests.control.fakes import DEPLOYMENT
from tests.server.app import App
from tests.server.security.test_auth import OPEN

from crucible.control.objects.store_health import REMEMBERED_SECONDS
from crucible.control.upkeep import restore_hold
from crucible.core.job.job_file import JobFile
from crucible.core.job.spec import JobSpec
from crucible.storage import StoreUnreachable


async def test_health(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"ok": True, "nonce": "n-1", "version": "1.2.3"}


async def test_ready(app: App, client: httpx2.AsyncClient) -> None:
    await app.control.start()
    answer = await client.get("/readyz")
    await app.control.stop()
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "nonce": "n-1", "version": "1.2.3", "deployment": DEPLOYMENT},
    )


async def test_not_ready_yet(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "nonce": "n-1", "version": "1.2.3"})
    assert answer.headers["Retry-After"] == "1"


async def test_not_ready_while_the_store_cannot_be_used(
    app: App, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnreachable("The store s3://private cannot be reached.", fix="Check the network.")

    await app.control.start()
    monkeypatch.setattr(app.harness.ports.store, "check", fail)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "store_unreachable" in answer.json()["why"]
    assert "private" not in answer.text, "anyone may ask"
    monkeypatch.undo()
    app.harness.clock.move(REMEMBERED_SECONDS)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    await app.control.stop()


async def test_what_the_server_is(app: App, client: httpx2.AsyncClient) -> None:
    await app.harness.running()
    found = (await client.get("/api/v1/server", headers={"Host": "localhost:81"})).json()
    assert found.pop("started_at").endswith("Z")
    assert found == {
        "version": "1.2.3",
        "api": 1,
        "deployment": DEPLOYMENT,
        "pid": os.getpid(),
        "url": "http://localhost:81",
        "agents_url": "http://127.0.0.1:2",
        "home": "/home/me/.crucible",
        "restored": None,
        "running": 1,
        "queued": 0,
        "billing": 0,
    }


async def test_a_restore_that_is_not_confirmed_is_told(app: App, client: httpx2.AsyncClient) -> None:
    now = app.harness.clock.now()
    await app.harness.sql(lambda conn: restore_hold.mark_restored(conn, now, now - 60))
    told = (await client.get("/api/v1/server")).json()["restored"]
    assert told == {"restored_at": now, "backup_at": now - 60, "why": restore_hold.WHY, "fix": restore_hold.FIX}


async def test_stop_is_answered_first(app: App, client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/server/stop")
    assert (answer.status_code, answer.json()) == (202, {"stopping": True})
    assert len(app.stops) == 1


async def test_stop_is_no_get(app: App, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/v1/server/stop")).status_code == 405
    assert app.stops == []


async def test_places(app: App, client: httpx2.AsyncClient) -> None:
    await app.harness.running()
    assert (await client.get("/api/v1/backends")).json()["items"][0]["name"] == "local"
    assert (await client.get("/api/v1/machines")).json()["items"][0]["id"].startswith("mch-")
    tiers = (await client.get("/api/v1/tiers")).json()["items"]
    assert {"CPU_SMALL", "GPU_LARGE"} <= {tier["id"] for tier in tiers}


@pytest.mark.parametrize(("path", "kind"), [("job", JobSpec), ("job-file", JobFile)])
async def test_the_schemas_of_jobs(client: httpx2.AsyncClient, path: str, kind: type[BaseModel]) -> None:
    schema = (await client.get(f"/api/v1/schema/{path}")).json()
    assert schema == kind.model_json_schema()
    assert "tier" in schema["properties"]


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, item[method]) for path, item in document["paths"].items() for method in item]


def test_every_operation_documents_its_problems(document: Any) -> None:
    found = operations(document)
    assert len(found) >= 18
    for path, operation in found:
        for status in ("401", "422", "500"):
            content = operation["responses"][status]["content"]
            schema = content["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, f"{path} {status}"
        assert operation["description"], path


def test_the_description_says_what_needs_the_token(document: Any) -> None:
    for path, operation in operations(document):
        wanted = [] if path in OPEN else [{"token": []}]
        assert operation["security"] == wanted, path


async def test_the_description_is_served(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["info"] == {"title": "Crucible", "version": "1.2.3"}
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
