"""Secrets over the API, on a real control plane: written and never read."""

from __future__ import annotations

import httpx2
import pytest
from fastapi import FastAPI
from tests.authorisation.populated_app import OWNERS, PopulatedApp
from tests.control.harness import secret

from crucible.server.agents.api import build_agents_api

VALUE = "never-to-be-seen-again"
SECRETS = "/api/v1/projects/alpha/secrets"


def client_of(app: FastAPI, token: str) -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


async def test_a_secret_is_set_changed_listed_and_removed(owner: httpx2.AsyncClient) -> None:
    first = await owner.put(f"{SECRETS}/TOKEN", json={"value": VALUE})
    again = await owner.put(f"{SECRETS}/TOKEN", json={"value": VALUE + "2"})
    listed = await owner.get(SECRETS)
    assert (first.status_code, again.status_code, listed.status_code) == (201, 200, 200)
    (item,) = listed.json()["items"]
    assert (item["name"], item["updated_by"]) == ("TOKEN", "owner")
    assert VALUE not in first.text + again.text + listed.text
    assert (await owner.delete(f"{SECRETS}/TOKEN")).status_code == 204
    gone = await owner.delete(f"{SECRETS}/TOKEN")
    assert gone.status_code == 404
    assert "crucible secrets set TOKEN --project alpha" in gone.json()["fix"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{SECRETS}/TOKEN", {"value": "k#z"}),
        (f"{SECRETS}/TOKEN", {"value": "x" * 40_000}),
        (f"{SECRETS}/TOKEN", {"value": 12345678901}),
        (f"{SECRETS}/TOKEN", {"value": VALUE, "more": VALUE}),
        (f"{SECRETS}/TOKEN", {}),
        (f"{SECRETS}/no%20name", {"value": VALUE}),
    ],
)
async def test_what_cannot_be_kept_gets_a_422_that_does_not_repeat_it(
    owner: httpx2.AsyncClient, path: str, body: dict[str, object]
) -> None:
    answer = await owner.put(path, json=body)
    assert answer.status_code == 422
    for value in filter(None, map(str, body.values())):
        assert value not in answer.text


async def test_a_missing_key_file_is_told_with_its_fix(populated_app: PopulatedApp, owner: httpx2.AsyncClient) -> None:
    await owner.put(f"{SECRETS}/TOKEN", json={"value": VALUE})
    (populated_app.harness.deployment.scratch / "secrets.keys").unlink()
    for answer in (
        await owner.put(f"{SECRETS}/OTHER", json={"value": VALUE}),
        await owner.post("/api/v1/secrets/rotate"),
    ):
        assert answer.status_code == 503
        assert "backup" in answer.json()["fix"]
    assert (await owner.get(SECRETS)).status_code == 200


async def test_rotation_says_how_many(owner: httpx2.AsyncClient) -> None:
    await owner.put(f"{SECRETS}/TOKEN", json={"value": VALUE})
    assert (await owner.post("/api/v1/secrets/rotate")).json() == {"secrets": 1, "keys": 1}


async def test_an_attempt_gets_its_own_with_its_own_secret_only(
    populated_app: PopulatedApp, owner: httpx2.AsyncClient
) -> None:
    await owner.put("/api/v1/projects/default/secrets/TOKEN", json={"value": VALUE})
    job = await populated_app.harness.submit(secrets={"HF": "TOKEN"})
    mine, other = (
        (await populated_app.harness.attempt(job)).id,
        (await populated_app.harness.attempt(populated_app.job)).id,
    )
    agents = build_agents_api(populated_app.control.agents)
    async with client_of(agents, secret("attempt", mine).decode()) as client:
        found = await client.get(f"/agent/v1/attempts/{mine}/0/secrets")
        assert found.json() == {"secrets": {"HF": VALUE}}
        assert found.headers["cache-control"] == "no-store"
        assert (await client.get(f"/agent/v1/attempts/{other}/0/secrets")).status_code == 401
    async with client_of(agents, OWNERS) as client:
        assert (await client.get(f"/agent/v1/attempts/{mine}/0/secrets")).status_code == 401
