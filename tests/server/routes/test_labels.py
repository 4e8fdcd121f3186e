"""Names, tags and notes over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.app import App

PATH = "/api/v1/jobs/last"


@pytest.fixture(autouse=True)
async def job(app: App) -> str:
    return await app.harness.submit()


async def test_a_job_is_renamed(client: httpx2.AsyncClient) -> None:
    answer = await client.patch(PATH, json={"name": "nightly"})
    assert (answer.status_code, answer.json()["name"]) == (200, "nightly")
    assert (await client.patch(PATH, json={"name": None})).json()["name"] is None


async def test_tags_are_listed_and_changed(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"{PATH}/tags")).json() == {"items": []}
    answer = await client.post(f"{PATH}/tags", json={"add": ["a", "lr=1"]})
    assert (answer.status_code, answer.json()) == (200, {"items": ["a", "lr=1"]})
    assert (await client.post(f"{PATH}/tags", json={"add": ["b"], "remove": ["a"]})).json() == {"items": ["b", "lr=1"]}


async def test_notes_are_left_listed_and_deleted(client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{PATH}/notes", json={"text": "  diverges  "})
    assert answer.status_code == 201
    note = answer.json()
    assert (note["author"], note["text"]) == ("owner", "diverges")
    assert (await client.get(f"{PATH}/notes")).json() == {"items": [note]}
    assert (await client.delete(f"{PATH}/notes/{note['id']}")).json() == note
    assert (await client.delete(f"{PATH}/notes/{note['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {}),
        ("PATCH", "", {"name": ""}),
        ("PATCH", "", {"name": "n" * 101}),
        ("PATCH", "", {"name": "a/b"}),
        ("PATCH", "", {"name": "a\x00"}),
        ("PATCH", "", {"name": 7}),
        ("PATCH", "", {"name": "x", "status": "failed"}),
        ("PATCH", "", []),
        ("POST", "/tags", {}),
        ("POST", "/tags", {"add": "a"}),
        ("POST", "/tags", {"add": [""]}),
        ("POST", "/tags", {"add": ["=x"]}),
        ("POST", "/tags", {"add": ["t\x00"]}),
        ("POST", "/tags", {"add": ["t" * 302]}),
        ("POST", "/tags", {"add": [None]}),
        ("POST", "/tags", {"add": [f"t{n}" for n in range(51)]}),
        ("POST", "/tags", {"set": ["a"]}),
        ("POST", "/notes", {}),
        ("POST", "/notes", {"text": ""}),
        ("POST", "/notes", {"text": "  \n "}),
        ("POST", "/notes", {"text": "t" * 2001}),
        ("POST", "/notes", {"text": "a\x00b"}),
        ("POST", "/notes", {"text": ["a"]}),
        ("POST", "/notes", {"text": "a", "author": "somebody else"}),
    ],
)
async def test_bad_input_is_refused(client: httpx2.AsyncClient, method: str, path: str, body: Any) -> None:
    answer = await client.request(method, PATH + path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["fix"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"text": "\xff"}', b'{"text": "\\ud800"}', b"\x00", b"null"])
async def test_what_is_not_json_is_refused(client: httpx2.AsyncClient, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await client.post(f"{PATH}/notes", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["fix"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("PATCH", ""), ("GET", "/tags"), ("POST", "/tags"), ("GET", "/notes"), ("POST", "/notes"), ("DELETE", "/notes/n")],
)
async def test_a_job_that_is_not_there(client: httpx2.AsyncClient, method: str, path: str) -> None:
    bodies = {"": {"name": "x"}, "/tags": {"add": ["a"]}, "/notes": {"text": "a"}}
    answer = await client.request(method, f"/api/v1/jobs/nobody{path}", json=bodies.get(path))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    too_long = await client.request(method, f"/api/v1/jobs/{'j' * 101}{path}", json=bodies.get(path))
    assert too_long.status_code == 422
