"""Nobody gets in without the token, whatever the route."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from tests.server.app import TOKEN, App
from tests.server.asgi import SocketClient

from crucible.server.security.auth import LOOPBACK, ForeignSite, check_host

HEALTH = {"/healthz", "/readyz"}
OPEN = {*HEALTH, "/login", "/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/oidc/callback"}


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Method and path of every route, `WS` for sockets."""
    for context in iter_route_contexts(app.routes):
        yield from ((method, context.path) for method in context.methods or {"WS"})


def filled(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "abc", path)


async def test_every_route_and_socket_needs_the_token(app: App, anonymous: httpx2.AsyncClient) -> None:
    walked = set()
    for method, path in routes(app.api):
        if path in OPEN:
            continue
        walked.add(path)
        if method == "WS":
            async with SocketClient(app.api, filled(path)) as socket:
                status, _ = await socket.refusal()
        else:
            status = (await anonymous.request(method, filled(path))).status_code
        assert status == 401, f"{method} {path}"
    assert {"/openapi.json", "/api/v1/jobs", "/api/v1/stream", "/api/v1/jobs/{id}/stream"} <= walked


@pytest.mark.parametrize("path", ["/", "/nothing", "/api/v1/nothing", "/docs", "/healthz/", "//healthz"])
async def test_paths_nobody_serves_need_it_too(anonymous: httpx2.AsyncClient, path: str) -> None:
    assert (await anonymous.get(f"http://127.0.0.1{path}")).status_code == 401


async def test_the_refusal_says_how_to_get_the_token(anonymous: httpx2.AsyncClient) -> None:
    answer = await anonymous.get("/api/v1/jobs")
    problem = answer.json()
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["code"] == "not_allowed"
    assert "token" in problem["fix"]
    assert problem["request_id"] == answer.headers["X-Request-ID"]


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer ", "Basic " + TOKEN, TOKEN, f"Bearer {TOKEN}x", "Bearer é"])
async def test_another_token_is_refused(anonymous: httpx2.AsyncClient, header: str) -> None:
    answer = await anonymous.get("/api/v1/jobs", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401


async def test_the_scheme_may_be_written_in_any_case(anonymous: httpx2.AsyncClient) -> None:
    answer = await anonymous.get("/api/v1/jobs", headers={"Authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", sorted(HEALTH))
async def test_health_answers_anyone(app: App, anonymous: httpx2.AsyncClient, path: str) -> None:
    await app.control.start()
    answer = await anonymous.get(path)
    await app.control.stop()
    assert answer.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost@evil.example:80"])
async def test_another_host_is_refused_even_with_the_token(client: httpx2.AsyncClient, host: str) -> None:
    answer = await client.get("/api/v1/jobs", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json()["code"] == "foreign_site"


def test_a_server_that_others_reach_does_not_say_that_nobody_does() -> None:
    with pytest.raises(ForeignSite, match="It answers only to its own host names") as refused:
        check_host(Headers({"host": "evil.example"}), LOOPBACK | {"crucible.example.org"})
    assert "crucible.example.org" in refused.value.fix
    with pytest.raises(ForeignSite, match="It listens on this computer only"):
        check_host(Headers({"host": "evil.example"}), LOOPBACK)


async def test_another_host_gets_no_health_either(anonymous: httpx2.AsyncClient) -> None:
    assert (await anonymous.get("/healthz", headers={"Host": "evil.example"})).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:99", "LOCALHOST"])
async def test_names_of_this_computer_are_fine(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/api/v1/jobs", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9", "http://[", "file://"])
async def test_pages_of_other_sites_are_refused(client: httpx2.AsyncClient, origin: str) -> None:
    answer = await client.post("/api/v1/server/stop", headers={"Origin": origin})
    assert answer.status_code == 403


async def test_our_own_page_is_not_refused(client: httpx2.AsyncClient) -> None:
    headers = {"Origin": "http://127.0.0.1:8080", "Host": "127.0.0.1:8080"}
    assert (await client.get("/api/v1/jobs", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("scheme", "origin", "status"), [("https", "https", 200), ("https", "http", 403), ("http", "http", 200)]
)
async def test_an_unencrypted_page_of_an_encrypted_server_is_another_site(
    client: httpx2.AsyncClient, scheme: str, origin: str, status: int
) -> None:
    headers = {"Origin": f"{origin}://127.0.0.1"}
    assert (await client.get(f"{scheme}://127.0.0.1/api/v1/jobs", headers=headers)).status_code == status


async def test_a_socket_takes_the_token_as_a_header(app: App) -> None:
    async with SocketClient(app.api, "/api/v1/stream", {"Authorization": f"Bearer {TOKEN}"}) as socket:
        assert (await socket.accepted())["subprotocol"] is None


async def test_a_socket_takes_the_token_as_a_subprotocol(app: App) -> None:
    offered = ("crucible.v1", f"crucible.bearer.{TOKEN}")
    async with SocketClient(app.api, "/api/v1/stream", subprotocols=offered) as socket:
        assert (await socket.accepted())["subprotocol"] == "crucible.v1"


async def test_a_lone_bearer_subprotocol_is_taken_back(app: App) -> None:
    async with SocketClient(app.api, "/api/v1/stream", subprotocols=(f"crucible.bearer.{TOKEN}",)) as socket:
        assert (await socket.accepted())["subprotocol"] == f"crucible.bearer.{TOKEN}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 403),
    ],
)
async def test_a_socket_is_refused_before_it_is_accepted(app: App, headers: dict[str, str], status: int) -> None:
    job = await app.harness.submit()
    lowered = {name.lower(): value for name, value in headers.items()}
    async with SocketClient(app.api, f"/api/v1/jobs/{job}/stream", lowered) as socket:
        refused, problem = await socket.refusal()
    assert refused == problem["status"] == status


async def test_a_token_in_the_address_does_not_count(anonymous: httpx2.AsyncClient) -> None:
    assert (await anonymous.get(f"/api/v1/jobs?token={TOKEN}")).status_code == 401
