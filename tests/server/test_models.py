"""Model plugins over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.fake_control import FakeControl


async def test_models_are_listed_and_shown(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/v1/models")).json() == {"items": [{"name": "counter", "error": None}]}
    assert (await http.get("/api/v1/models/counter")).json()["name"] == "counter"
    answer = await http.get("/api/v1/models/countre")
    assert (answer.status_code, answer.json()["fix"]) == (404, "Did you mean 'counter'?")


async def test_a_model_is_asked_by_a_job(http: httpx2.AsyncClient, control: FakeControl) -> None:
    body = {"method": "infer", "inputs": [1, 2], "config": {"a": 1}, "job": {"name": "mine"}}
    headers = {"Idempotency-Key": "k"}
    first = await http.post("/api/v1/models/counter/jobs", json=body, headers=headers)
    again = await http.post("/api/v1/models/counter/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["Location"] == f"/api/v1/jobs/{first.json()['id']}"
    spec, _ = control.submitted[0]
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
    http: httpx2.AsyncClient, control: FakeControl, name: str, body: dict[str, Any], status: int
) -> None:
    answer = await http.post(f"/api/v1/models/{name}/jobs", json=body)
    assert answer.status_code == status
    assert answer.json()["fix"]
    assert control.submitted == []
