"""Machines, pruning and copies of the database over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.fake_control import MACHINE, OLD_MACHINE, FakeControl


async def test_machines_that_are_gone_are_shown_when_asked_for(http: httpx2.AsyncClient) -> None:
    shown = (await http.get("/api/v1/machines")).json()["items"]
    every = (await http.get("/api/v1/machines?all=true")).json()["items"]
    assert [item["id"] for item in shown] == [MACHINE]
    assert [item["id"] for item in every] == [MACHINE, OLD_MACHINE]


async def test_orphans(http: httpx2.AsyncClient, control: FakeControl) -> None:
    assert (await http.get("/api/v1/machines/orphans")).json() == {"items": []}
    control.strangers = [{"backend": "rehearsal", "machine": None, "native_id": "i-1", "why": "unknown"}]
    assert (await http.get("/api/v1/machines/orphans")).json()["items"][0]["native_id"] == "i-1"


async def test_a_machine_is_ended_again_and_again(http: httpx2.AsyncClient) -> None:
    for _ in range(2):
        answer = await http.post(f"/api/v1/machines/{MACHINE}/terminate")
        assert (answer.status_code, answer.json()["state"]) == (202, "releasing")
    assert (await http.post("/api/v1/machines/nosuch/terminate")).status_code == 404
    assert (await http.get(f"/api/v1/machines/{MACHINE}/terminate")).status_code == 405


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (None, (None, False)),
        ({}, (None, False)),
        ({"older_than_seconds": 0}, (0.0, False)),
        ({"older_than_seconds": 86400, "dry_run": True}, (86400.0, True)),
    ],
)
async def test_pruning(http: httpx2.AsyncClient, control: FakeControl, body: Any, asked: Any) -> None:
    answer = await http.post("/api/v1/prune", json=body) if body is not None else await http.post("/api/v1/prune")
    assert answer.status_code == 200
    assert control.pruned == [asked]


@pytest.mark.parametrize(
    "body",
    [{"older_than_seconds": -1}, {"older_than_seconds": "soon"}, {"older_than_seconds": 1e20}, {"dryrun": True}],
)
async def test_what_makes_no_sense_prunes_nothing(http: httpx2.AsyncClient, control: FakeControl, body: Any) -> None:
    answer = await http.post("/api/v1/prune", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")
    assert control.pruned == []


async def test_the_database_is_copied_to_a_new_file(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.post("/api/v1/db/backup", json={"path": "/var/backups/crucible.db"})
    assert (answer.status_code, answer.json()["path"]) == (200, "/var/backups/crucible.db")
    again = await http.post("/api/v1/db/backup", json={"path": "/var/backups/crucible.db"})
    assert again.status_code == 409


@pytest.mark.parametrize("path", ["", "here.db", "/a\x00b", None])
async def test_a_copy_needs_an_absolute_path(http: httpx2.AsyncClient, control: FakeControl, path: Any) -> None:
    answer = await http.post("/api/v1/db/backup", json={"path": path})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "path"
    assert control.backups == []


async def test_a_restore_is_confirmed(http: httpx2.AsyncClient, control: FakeControl) -> None:
    assert (await http.post("/api/v1/db/confirm")).json() == {"confirmed": True}
    assert control.confirmed == 1


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/jobs/{id}/resume", "post"),
        ("/api/v1/jobs/{id}/rerun", "post"),
        ("/api/v1/jobs/{id}/checkpoint", "post"),
        ("/api/v1/jobs/{id}/checkpoints", "get"),
        ("/api/v1/jobs/{id}/checkpoints/{checkpoint}/content", "get"),
        ("/api/v1/machines/{machine}/terminate", "post"),
        ("/api/v1/prune", "post"),
        ("/api/v1/db/backup", "post"),
    ],
)
def test_each_route_is_described(document: Any, path: str, method: str) -> None:
    found = document["paths"][path][method]
    assert found["description"]
    assert "application/problem+json" in found["responses"]["422"]["content"]
