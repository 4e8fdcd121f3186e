"""Every answer says which server gave it."""

from __future__ import annotations

import httpx2
import pytest

from crucible.core.versions import API


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/server", "/api/v1/jobs/nosuch", "/nowhere"])
async def test_answers_tell_the_servers_version(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.headers["X-Crucible-Version"] == "1.2.3"
    assert answer.headers["X-Crucible-Api"] == str(API)


async def test_a_refusal_tells_it_too(anonymous: httpx2.AsyncClient) -> None:
    answer = await anonymous.get("/api/v1/server")
    assert (answer.status_code, answer.headers["X-Crucible-Version"]) == (401, "1.2.3")


async def test_the_number_of_the_api_is_shown(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/v1/server")).json()["api"] == API


async def test_agents_are_told_nothing(agent: httpx2.AsyncClient) -> None:
    assert "X-Crucible-Version" not in (await agent.get("/")).headers
