"""A NUL character in an address is refused before any route, for those who may ask at all."""

from __future__ import annotations

import httpx2
import pytest
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN


@pytest.mark.parametrize(
    "url", ["/api/v1/users/a%00b", "/api/v1/jobs/%00", "/api/v1/audit?project=%00", "/healthz?%00"]
)
async def test_it_names_nothing(client: httpx2.AsyncClient, url: str) -> None:
    answer = await client.request("GET", url)
    assert (answer.status_code, answer.json()["detail"]) == (422, "The URL contains a NUL character.")
    assert answer.json()["fix"]


async def test_strangers_hear_of_their_token_first(anonymous: httpx2.AsyncClient) -> None:
    assert (await anonymous.get("/api/v1/users/%00")).status_code == 401


async def test_a_socket_is_refused_as_well(app: App) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with SocketClient(app.api, "/api/v1/jobs/a\x00b/stream", headers) as socket:
        status, problem = await socket.refusal()
    assert (status, problem["code"]) == (422, "bad_input")


async def test_so_are_agents(agent: httpx2.AsyncClient) -> None:
    assert (await agent.get("/agent/v1/bundles/%00?attempt=%00")).status_code == 422
