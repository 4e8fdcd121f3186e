"""Model plugins over HTTP, of a Python that has some."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.plugin_packages import COUNTER, HEAD, install, make_python
from tests.server.app import TOKEN, App
from tests.server.conftest import asking

from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.reconcile import codec
from crucible.control.resources.models import ModelsPython
from crucible.server.api import build_api


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = make_python(tmp_path / "venv")
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    return site


@pytest.fixture
async def client(app: App, site: Path, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Asks a server with that Python."""
    python = ModelsPython(str(tmp_path / "venv" / "bin" / "python"), dict(os.environ))
    control = ControlPlane(app.harness.ports, app.harness.backends, replace(app.harness.deployment, models=python))
    await control._services.offers.refresh()
    await control._services.duties.renew(app.harness.ports.db, app.harness.clock)
    api = build_api(control, token=TOKEN, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with asking(api, TOKEN) as client:
        yield client


async def test_models_are_listed_and_shown(client: httpx2.AsyncClient) -> None:
    (listed,) = (await client.get("/api/v1/models")).json()["items"]
    assert (listed["name"], listed["error"], listed["schema"]["epochs"]["default"]) == ("counter", None, 3)
    assert (await client.get("/api/v1/models/counter")).json() == listed
    answer = await client.get("/api/v1/models/countre")
    assert (answer.status_code, "Did you mean 'counter'?" in answer.json()["fix"]) == (404, True)


async def test_a_model_that_says_what_json_cannot_hides_no_other(client: httpx2.AsyncClient, site: Path) -> None:
    """Half a character, and a number that is none."""
    options = '{"rate": Option(float, default=float("nan"))}'
    code = f'{HEAD}class Odd(BaseModel):\n    """\\ud800"""\n    schema = {options}\n    def infer(self, i): return 1\n'
    install(site, "odd", code, {"odd": "odd:Odd"})
    items = (await client.get("/api/v1/models")).json()["items"]
    assert [item["name"] for item in items] == ["counter", "odd"]


async def test_a_model_is_asked_by_a_job(app: App, client: httpx2.AsyncClient) -> None:
    body = {"method": "infer", "inputs": [1, 2], "config": {"epochs": 1}, "job": {"name": "mine"}}
    headers = {"Idempotency-Key": "k"}
    first = await client.post("/api/v1/models/counter/jobs", json=body, headers=headers)
    again = await client.post("/api/v1/models/counter/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["Location"] == f"/api/v1/jobs/{first.json()['id']}"
    (row,) = await app.harness.rows(t.jobs)
    spec = codec.parse_spec(row["spec"])
    assert (spec.kind.value, spec.name) == ("inference", "mine")
    assert spec.command[-2:] == ("--inputs", "[1, 2]")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("counter", {"method": "fly"}, 422),
        ("counter", {"config": []}, 422),
        ("counter", {"nonsense": 1}, 422),
        ("counter", {"callbacks": [""]}, 422),
        ("counter", {"job": []}, 422),
        ("nobody", {}, 404),
        ("x" * 201, {}, 422),
    ],
)
async def test_bad_orders_are_refused(
    app: App, client: httpx2.AsyncClient, name: str, body: dict[str, Any], status: int
) -> None:
    answer = await client.post(f"/api/v1/models/{name}/jobs", json=body)
    assert answer.status_code == status
    assert answer.json()["fix"]
    assert await app.harness.rows(t.jobs) == []
