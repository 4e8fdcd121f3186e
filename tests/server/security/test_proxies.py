"""What a proxy says is believed of a proxy alone, and of that only what it wrote itself."""

from __future__ import annotations

import ipaddress
from ipaddress import ip_network

import httpx2
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from tests.server.app import TOKEN, App

from crucible.server.api import build_api
from crucible.server.security import rate_limits
from crucible.server.security.proxies import MAX_ENTRY, THIS_COMPUTER, ProxyHeaders, trusted_networks
from crucible.server.security.rate_limits import Rate

PUBLIC = "https://crucible.example.org:8443"
HOST = "crucible.example.org:8443"
STRANGER = "203.0.113.9"


async def heard(
    headers: list[tuple[str, str]],
    client: tuple[str, int] | None = ("127.0.0.1", 4000),
    *,
    type: str = "http",
    scheme: str = "http",
    trusted: tuple[str, ...] = ("127.0.0.0/8", "::1/128"),
) -> tuple[str | None, str]:
    """Who asks and how, as the routes see it."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing(*_given: object) -> None:
        raise AssertionError("nothing is read or sent")

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope: Scope = {"type": type, "scheme": scheme, "client": client, "headers": raw}
    proxies = ProxyHeaders(app, trusted=[ipaddress.ip_network(network) for network in trusted])
    await proxies(scope, nothing, nothing)  # type: ignore[arg-type]
    assert scope["client"] == client, "what came in is not changed"
    found = seen[0]["client"]
    return (found[0] if found else None), seen[0]["scheme"]


def forwarded(value: str) -> list[tuple[str, str]]:
    return [("x-forwarded-for", value)]


@pytest.mark.parametrize(
    ("told", "asks"),
    [
        (STRANGER, STRANGER),
        (f" {STRANGER} ", STRANGER),
        (f"{STRANGER}:5123", STRANGER),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        (f"::ffff:{STRANGER}", STRANGER),
        (f"1.1.1.1, 2.2.2.2,{STRANGER}", STRANGER),
        (f"127.0.0.1, {STRANGER}", STRANGER),
        (f"{STRANGER}, 127.0.0.1", "127.0.0.1"),
    ],
)
async def test_the_last_address_is_the_one_that_asks(told: str, asks: str) -> None:
    assert await heard(forwarded(told)) == (asks, "http")


async def test_of_several_headers_the_last_counts() -> None:
    assert (await heard([*forwarded("1.1.1.1"), *forwarded(f"2.2.2.2, {STRANGER}")]))[0] == STRANGER


@pytest.mark.parametrize(
    "told",
    [
        "",
        ",",
        f"{STRANGER},",
        "unknown",
        "_hidden",
        "999.1.1.1",
        "1.1.1.1.1",
        "0x7f.1",
        "\x80",
        "a\x00b",
        "[::1",
        "::1]",
        "fe80::1%eth0; x",
        "1" * 9000,
        f"{STRANGER} 1.1.1.1",
        "http://1.1.1.1",
        f'for="{STRANGER}"',
        "1.1.1.1:" + "9" * MAX_ENTRY,
    ],
)
async def test_what_is_no_address_is_not_believed(told: str) -> None:
    found, _ = await heard(forwarded(told))
    assert found == "127.0.0.1", "the proxy's own"


@pytest.mark.parametrize(
    ("headers", "type", "scheme"),
    [
        ([("x-forwarded-proto", "https")], "http", "https"),
        ([("x-forwarded-proto", "HTTPS ")], "http", "https"),
        ([("x-forwarded-proto", "http, https")], "http", "https"),
        ([("x-forwarded-proto", "https, http")], "http", "http"),
        ([("x-forwarded-proto", "https")], "websocket", "wss"),
        ([("x-forwarded-proto", "javascript")], "http", "http"),
        ([("x-forwarded-proto", "")], "http", "http"),
        ([("x-forwarded-ssl", "on")], "http", "http"),
    ],
)
async def test_how_the_request_came_to_the_proxy(headers: list[tuple[str, str]], type: str, scheme: str) -> None:
    came = "ws" if type == "websocket" else "http"
    assert (await heard(headers, type=type, scheme=came))[1] == scheme


@pytest.mark.parametrize("client", [("10.0.0.8", 1), ("::2", 1), ("localhost", 1), ("", 0), None])
async def test_of_anybody_else_nothing_is_believed(client: tuple[str, int] | None) -> None:
    said = [*forwarded(STRANGER), ("x-forwarded-proto", "https")]
    assert await heard(said, client) == (client[0] if client else None, "http")


async def test_a_proxy_elsewhere_is_one_where_it_is_named() -> None:
    assert (await heard(forwarded(STRANGER), ("10.0.0.8", 1), trusted=("10.0.0.0/24",)))[0] == STRANGER
    assert (await heard(forwarded(STRANGER), ("127.0.0.1", 1), trusted=("10.0.0.0/24",)))[0] == "127.0.0.1"
    assert (await heard(forwarded(STRANGER), ("::ffff:10.0.0.8", 1), trusted=("10.0.0.0/24",)))[0] == STRANGER


async def test_where_we_encrypt_ourselves_there_is_no_proxy() -> None:
    assert (await heard(forwarded(STRANGER), scheme="https"))[0] == "127.0.0.1"


async def test_other_headers_of_the_kind_mean_nothing() -> None:
    said = [("forwarded", f"for={STRANGER};proto=https"), ("x-real-ip", STRANGER), ("x-client-ip", STRANGER)]
    assert await heard(said) == ("127.0.0.1", "http")


def server(app: App, *, secure: bool) -> FastAPI:
    about = {"token": TOKEN, "nonce": "n", "version": "1", "home": "/h", "on_stop": lambda: None}
    hosts = frozenset({"crucible.example.org"})
    return build_api(app.control, **about, hosts=hosts, secure=secure, public_url=PUBLIC)  # type: ignore[arg-type]


def through(api: FastAPI, peer: str, **headers: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(api, client=(peer, 4000))
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers={"Host": HOST, **told})


async def tries(api: FastAPI, peer: str, asks: str, count: int) -> set[int]:
    async with through(api, peer, x_forwarded_for=asks) as client:
        return {(await client.post("/api/v1/login", json={})).status_code for _ in range(count)}


async def test_logins_through_a_proxy_are_counted_for_each_who_asks(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "ANONYMOUS", Rate(0.001, 5))
    api = server(app, secure=True)
    assert await tries(api, "127.0.0.1", STRANGER, 6) == {422, 429}
    assert await tries(api, "127.0.0.1", "203.0.113.10", 5) == {422}
    assert await tries(api, "127.0.0.1", f"9.9.9.9, {STRANGER}", 1) == {429}, "what he writes himself does not help"


async def test_without_a_proxy_nobody_has_many_addresses(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "ANONYMOUS", Rate(0.001, 5))
    api = server(app, secure=False)
    for n in range(5):
        await tries(api, "127.0.0.1", f"203.0.113.{n}", 1)
    assert await tries(api, "127.0.0.1", "203.0.113.99", 1) == {429}


async def test_whoever_asks_by_the_public_name_is_told_the_public_address(app: App) -> None:
    api = server(app, secure=True)
    async with through(api, "127.0.0.1", Authorization=f"Bearer {TOKEN}") as client:
        assert (await client.get("/api/v1/server")).json()["url"] == PUBLIC
        here = await client.get("/api/v1/server", headers={"Host": "127.0.0.1:4000"})
        assert here.json()["url"] == "http://127.0.0.1:4000"
        lying = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http"}
        assert (await client.get("/api/v1/server", headers=lying)).json()["url"] == PUBLIC


def test_this_computer_is_always_trusted_and_others_by_name() -> None:
    assert trusted_networks(()) == THIS_COMPUTER
    assert trusted_networks(("10.0.0.7", "10.1.0.0/16"))[2:] == (ip_network("10.0.0.7/32"), ip_network("10.1.0.0/16"))
