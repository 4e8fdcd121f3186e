"""Hooks over the API, on a real control plane: made, tried, changed, and their secrets shown once."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.authorisation.populated_app import PopulatedApp
from tests.control.fakes import FakePost

from crucible.client import verify_webhook
from crucible.core.hooks import Reply

HOOKS = "/api/v1/projects/alpha/hooks"
URL = "https://hooks.example/crucible"


def post_of(populated_app: PopulatedApp) -> FakePost:
    assert isinstance(populated_app.harness.deployment.post, FakePost)
    return populated_app.harness.deployment.post


async def made(owner: httpx2.AsyncClient, **more: object) -> dict[str, Any]:
    answer = await owner.post(HOOKS, json={"url": URL, **more})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_hook_from_its_making_to_its_end(owner: httpx2.AsyncClient) -> None:
    hook = await made(owner)
    assert hook["secret"].startswith("whsec_")
    assert (hook["events"], hook["format"]) == (["completed", "failed", "cancelled"], "json")
    path = f"{HOOKS}/{hook['id'][-6:]}"
    listed, shown = await owner.get(HOOKS), await owner.get(path)
    assert [item["id"] for item in listed.json()["items"]] == [shown.json()["id"]] == [hook["id"]]
    assert "whsec_" not in listed.text + shown.text
    changed = await owner.patch(path, json={"events": ["failed"], "enabled": False})
    assert (changed.json()["events"], changed.json()["state"]) == (["failed"], "disabled")
    assert (await owner.delete(path)).status_code == 204
    gone = await owner.get(path)
    assert gone.status_code == 404
    assert "crucible notifications --project alpha" in gone.json()["fix"]


async def test_every_secret_is_another(owner: httpx2.AsyncClient) -> None:
    hook = await made(owner)
    rotated = (await owner.post(f"{HOOKS}/{hook['id']}/rotate")).json()
    assert len({hook["secret"], rotated["secret"], (await made(owner))["secret"]}) == 3
    assert rotated["rotated_at"]


async def test_a_test_is_signed_and_says_what_was_answered(
    populated_app: PopulatedApp, owner: httpx2.AsyncClient
) -> None:
    hook = await made(owner)
    post_of(populated_app).replies[URL] = [Reply(200, "welcome"), Reply(302, "It answered with a redirect")]
    good, bad = [(await owner.post(f"{HOOKS}/{hook['id']}/test")).json() for _ in range(2)]
    assert (good["hook"], good["outcome"], good["status"], good["answer"]) == (hook["id"], "delivered", 200, "welcome")
    assert (bad["outcome"], bad["status"]) == ("failed", 302)
    sent = post_of(populated_app).posted[0]
    message = verify_webhook(hook["secret"], sent.headers, sent.body, now=populated_app.harness.clock.now())
    assert message["type"] == "ping"
    tries = (await owner.get(f"{HOOKS}/{hook['id']}/deliveries", params={"limit": 1})).json()["items"]
    assert [item["status"] for item in tries] == [302]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": ""},
        {"url": 5},
        {"url": "x" * 2001},
        {"url": "ftp://hooks.example"},
        {"url": "https://unknown.example"},
        {"url": URL, "events": []},
        {"url": URL, "events": ["exploded"]},
        {"url": URL, "events": "failed"},
        {"url": URL, "format": "fax"},
        {"url": URL, "secret": "mine"},
    ],
)
async def test_what_cannot_be_gets_a_422_that_says_why(owner: httpx2.AsyncClient, body: dict[str, object]) -> None:
    answer = await owner.post(HOOKS, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"], answer.text
    assert (await owner.get(HOOKS)).json() == {"items": []}


async def test_an_address_of_our_own_gets_a_403_that_names_the_setting(owner: httpx2.AsyncClient) -> None:
    answer = await owner.post(HOOKS, json={"url": "http://10.0.0.1/"})
    assert (answer.status_code, answer.json()["code"]) == (403, "refused_by_policy")
    assert "webhook_hosts" in answer.json()["fix"]


@pytest.mark.parametrize(
    "text", ["https://hooks.example/\\ud800", "https://a\\u0000b", "https://\\ufdfa.example/\\u202e"]
)
async def test_letters_that_nobody_can_keep_break_nothing(owner: httpx2.AsyncClient, text: str) -> None:
    headers = {"content-type": "application/json"}
    answer = await owner.post(HOOKS, content=f'{{"url": "{text}"}}', headers=headers)
    assert answer.status_code in (201, 422)
    assert (await owner.get(HOOKS)).status_code == 200


@pytest.mark.parametrize("limit", ["0", "101", "x"])
async def test_how_many_deliveries_is_bounded(owner: httpx2.AsyncClient, limit: str) -> None:
    hook = await made(owner)
    answer = await owner.get(f"{HOOKS}/{hook['id']}/deliveries", params={"limit": limit})
    assert answer.status_code == 422


async def test_another_projects_hook_is_not_there(owner: httpx2.AsyncClient) -> None:
    hook = await made(owner)
    assert (await owner.get(f"/api/v1/projects/beta/hooks/{hook['id']}")).status_code == 404
    assert (await owner.get("/api/v1/projects/nowhere/hooks")).status_code == 404
