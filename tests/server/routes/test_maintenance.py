"""Machines, pruning and copies of the database over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.control.harness import new_id
from tests.server.app import TOKEN, App
from tests.server.conftest import asking

from crucible.backends.base import Seen
from crucible.control.control_plane import ControlPlane
from crucible.control.db import open_database
from crucible.control.db import schema as t
from crucible.control.jobs.views import iso
from crucible.control.upkeep import restore_hold
from crucible.core.ids import Prefix
from crucible.core.people.identity import OWNER
from crucible.server.api import build_api

DAY = 86400.0


async def test_machines_that_are_gone_are_shown_when_asked_for(app: App, client: httpx2.AsyncClient) -> None:
    harness = app.harness
    await harness.running()
    gone = (await harness.machine()).id
    await app.control.machines.terminate(OWNER, gone)
    harness.backend.show(gone, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    await harness.submit()
    await harness.place()
    (here,) = {row["id"] for row in await harness.rows(t.machines)} - {gone}
    shown = (await client.get("/api/v1/machines")).json()["items"]
    every = (await client.get("/api/v1/machines?all=true")).json()["items"]
    assert [item["id"] for item in shown] == [here]
    assert {item["id"] for item in every} == {here, gone}


async def test_orphans(app: App, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/v1/machines/orphans")).json() == {"items": []}
    stranger = new_id(Prefix.MACHINE, 99)
    app.harness.backend.add(stranger)
    (orphan,) = (await client.get("/api/v1/machines/orphans")).json()["items"]
    assert (orphan["native_id"], orphan["machine"]) == (f"i-{stranger}", stranger)


async def test_a_machine_is_ended_again_and_again(app: App, client: httpx2.AsyncClient) -> None:
    await app.harness.running()
    machine = (await app.harness.machine()).id
    for _ in range(2):
        answer = await client.post(f"/api/v1/machines/{machine}/terminate")
        assert (answer.status_code, answer.json()["state"]) == (202, "releasing")
    assert (await client.post("/api/v1/machines/nosuch/terminate")).status_code == 404
    assert (await client.get(f"/api/v1/machines/{machine}/terminate")).status_code == 405


@pytest.mark.parametrize(
    ("body", "pruned"),
    [
        (None, False),
        ({}, False),
        ({"older_than_seconds": 2 * DAY}, False),
        ({"older_than_seconds": DAY}, True),
        ({"older_than_seconds": DAY, "dry_run": True}, True),
    ],
)
async def test_pruning(app: App, client: httpx2.AsyncClient, body: Any, pruned: bool) -> None:
    """Of a job that ended a day ago; what is 30 days old goes by default."""
    _, runner = await app.harness.running()
    await runner.log(0, 0, b"a line\n")
    await runner.end()
    app.harness.clock.move(DAY + 60)
    answer = await (client.post("/api/v1/prune") if body is None else client.post("/api/v1/prune", json=body))
    dry_run = bool(body and body.get("dry_run"))
    assert (answer.status_code, answer.json()["dry_run"]) == (200, dry_run)
    assert (answer.json()["jobs"], answer.json()["bytes"]) == ((1, 7) if pruned else (0, 0))
    assert [row["pruned_at"] is not None for row in await app.harness.rows(t.jobs)] == [pruned and not dry_run]


@pytest.mark.parametrize(
    "body",
    [{"older_than_seconds": -1}, {"older_than_seconds": "soon"}, {"older_than_seconds": 1e20}, {"dryrun": True}],
)
async def test_what_makes_no_sense_prunes_nothing(app: App, client: httpx2.AsyncClient, body: Any) -> None:
    _, runner = await app.harness.running()
    await runner.end()
    app.harness.clock.move(100 * DAY)
    answer = await client.post("/api/v1/prune", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")
    assert [row["pruned_at"] for row in await app.harness.rows(t.jobs)] == [None]


async def test_the_database_is_copied_to_a_new_file(app: App, tmp_path: Path) -> None:
    database, target = tmp_path / "crucible.db", tmp_path / "backup.zip"
    await open_database(database).close()
    control = ControlPlane(app.harness.ports, app.harness.backends, replace(app.harness.deployment, database=database))
    api = build_api(control, token=TOKEN, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with asking(api, TOKEN) as client:
        answer = await client.post("/api/v1/db/backup", json={"path": str(target)})
        assert (answer.status_code, answer.json()["path"]) == (200, str(target))
        assert answer.json()["bytes"] == target.stat().st_size
        again = await client.post("/api/v1/db/backup", json={"path": str(target)})
    assert (again.status_code, again.json()["code"]) == (409, "backup_exists")


@pytest.mark.parametrize("path", ["", "here.db", "/a\x00b", None])
async def test_a_copy_needs_an_absolute_path(client: httpx2.AsyncClient, path: Any) -> None:
    answer = await client.post("/api/v1/db/backup", json={"path": path})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "path"


async def test_a_restore_is_confirmed(app: App, client: httpx2.AsyncClient) -> None:
    nothing = {"confirmed": False, "restored_at": None, "effects": 0}
    assert (await client.post("/api/v1/db/confirm")).json() == nothing
    await app.harness.sql(lambda conn: restore_hold.mark_restored(conn, app.harness.clock.now(), 0.0))
    told = (await client.post("/api/v1/db/confirm")).json()
    assert (told["confirmed"], told["restored_at"]) == (True, iso(app.harness.clock.now()))
    assert (await client.post("/api/v1/db/confirm")).json() == nothing


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
