"""Signing in with the OpenID provider over HTTP: cookies, pages, and where a browser ends up."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from tests.authorisation.populated_app import PopulatedApp, populate
from tests.control.harness import ControlHarness, give_back, make_harness, service
from tests.openid_provider import ADA, EVE

from crucible.core.people.identity import OWNER
from crucible.core.people.openid import make_challenge
from crucible.server.api import build_api
from crucible.server.security import rate_limits
from crucible.server.security.rate_limits import Rate

HOST = "127.0.0.1"
OWN = {"Origin": f"http://{HOST}"}
BEGIN = "/api/v1/login/oidc"
HTML = {"Accept": "text/html,application/xhtml+xml"}
VERIFIER = "v" * 64
COMMAND = {"port": "43210", "challenge": make_challenge(VERIFIER), "state": "echo-1"}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path)
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
async def populated_app(harness: ControlHarness) -> PopulatedApp:
    populated_app = await populate(harness)
    await populated_app.control.people.add_user(OWNER, "ada", email=str(ADA["email"]))
    return populated_app


def browser_of(api: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(api), base_url=f"http://{HOST}")


@pytest.fixture
async def browser(populated_app: PopulatedApp) -> AsyncIterator[httpx2.AsyncClient]:
    async with browser_of(populated_app.api) as client:
        yield client


async def back(populated_app: PopulatedApp, browser: httpx2.AsyncClient, **query: str) -> str:
    """Away to the provider; the address at which the browser comes back."""
    away = await browser.get(BEGIN, params=query)
    assert away.status_code == 303, away.text
    url = populated_app.provider.browse(away.headers["location"])
    assert url.startswith(f"http://{HOST}{BEGIN}/callback?")
    return url


async def test_a_browser_lands_with_a_session(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    landed = await browser.get(await back(populated_app, browser))
    assert (landed.status_code, "logged in as ada" in landed.text) == (200, True)
    me = (await browser.get("/api/v1/me")).json()
    assert (me["user"], me["via"]) == ("ada", "browser")
    assert (await browser.post("/api/v1/logout", headers=OWN)).status_code == 204
    assert (await browser.get("/api/v1/me")).status_code == 401


async def test_the_cookies_are_narrow(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    away = await browser.get(BEGIN)
    cookie = away.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "path=/;", "max-age=600"))
    landed = await browser.get(populated_app.provider.browse(away.headers["location"]))
    session, gone = landed.headers.get_list("set-cookie")
    assert all(word in session.lower() for word in ("crucible_session=", "httponly", "samesite=strict", "path=/"))
    assert "crucible_signin=" in gone
    assert "max-age=0" in gone.lower()


async def test_cookies_are_for_encrypted_ways_where_the_server_is(populated_app: PopulatedApp) -> None:
    public = "https://crucible.example.org"
    api = build_api(
        populated_app.control,
        token="o" * 64,
        nonce="n",
        version="1",
        home="/h",
        on_stop=lambda: None,
        hosts=frozenset({"crucible.example.org"}),
        secure=True,
        public_url=public,
    )
    async with browser_of(api) as browser:
        away = await browser.get(BEGIN, headers={"Host": "crucible.example.org"})
    cookie = away.headers["set-cookie"]
    assert cookie.startswith("__Host-crucible_signin=")
    assert "; Path=/;" in cookie
    assert "; Secure" in cookie
    assert "domain" not in cookie.lower(), "no neighbouring site can plant one"
    asked = dict(parse_qsl(urlsplit(away.headers["location"]).query))
    assert asked["redirect_uri"] == f"{public}{BEGIN}/callback", "also behind a proxy that speaks http to us"


async def test_it_goes_on_to_the_page_that_was_asked_for(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    landed = await browser.get(await back(populated_app, browser, next='/jobs?name="x"&all=1'.replace('"', "%22")))
    (there,) = re.findall(r'<meta http-equiv="refresh" content="0;url=([^"]*)">', landed.text)
    assert html.unescape(there) == "/jobs?name=%22x%22&all=1"
    assert landed.status_code == 200, "a redirect would leave the strict cookie behind"


@pytest.mark.parametrize(
    "next", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "", "x" * 2001]
)
async def test_it_goes_on_to_no_other_site(browser: httpx2.AsyncClient, next: str) -> None:
    refused = await browser.get(BEGIN, params={"next": next})
    assert (refused.status_code, bool(refused.json()["fix"])) == (422, True)
    assert "set-cookie" not in refused.headers


async def test_markup_in_a_path_stays_text(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    landed = await browser.get(await back(populated_app, browser, next='/"><script>alert(1)</script>'))
    assert "<script>" not in landed.text


# not in


async def test_a_state_works_once(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    url = await back(populated_app, browser)
    cookie = browser.cookies["crucible_signin"]
    assert (await browser.get(url)).status_code == 200
    browser.cookies.set("crucible_signin", cookie)
    again = await browser.get(url)
    assert (again.status_code, again.json()["code"]) == (401, "not_allowed")
    assert "Start again" in again.json()["fix"]


async def test_another_browser_does_not_come_in(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    """Neither whoever stole the address, nor a victim that was given the attacker's."""
    url = await back(populated_app, browser)
    async with browser_of(populated_app.api) as other:
        assert (await other.get(url)).status_code == 401
        await back(populated_app, other)
        refused = await other.get(url)
        assert (refused.status_code, "crucible_session" in refused.headers.get("set-cookie", "")) == (401, False)


@pytest.mark.parametrize(
    "query", ["", "code=x", "state=y", "code=x&state=y", "error=access_denied", "state=%01&code=%ff"]
)
async def test_answers_that_nobody_asked_for(browser: httpx2.AsyncClient, query: str) -> None:
    answer = await browser.get(f"{BEGIN}/callback?{query}")
    assert answer.status_code == 401


@pytest.mark.parametrize("name", ["code", "state", "error", "iss"])
async def test_answers_that_are_too_long(browser: httpx2.AsyncClient, name: str) -> None:
    assert (await browser.get(f"{BEGIN}/callback", params={name: "x" * 2001})).status_code == 422


async def test_what_is_refused_is_told_to_a_person_in_words(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    populated_app.provider.person = {**EVE, "email": "eve@example.com"}
    url = await back(populated_app, browser)
    refused = await browser.get(url, headers=HTML)
    assert refused.status_code == 403
    assert refused.headers["content-type"].startswith("text/html")
    assert "You are not a user of this server." in refused.text
    assert "crucible_session" not in refused.headers["set-cookie"]


async def test_what_the_provider_says_is_no_markup(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    state = dict(parse_qsl(urlsplit(await back(populated_app, browser)).query))["state"]
    query = {"state": state, "error": "<script>alert(1)</script>"}
    refused = await browser.get(f"{BEGIN}/callback", params=query, headers=HTML)
    assert (refused.status_code, "<script>" in refused.text) == (401, False)


@pytest.mark.parametrize(
    ("more", "status"),
    [({"nonce": "x"}, 401), ({"aud": "x"}, 401), ({"exp": 1}, 401), ({"email_verified": False}, 403)],
)
async def test_tokens_that_do_not_let_in(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient, more: dict[str, object], status: int
) -> None:
    populated_app.provider.token_more = more
    refused = await browser.get(await back(populated_app, browser))
    assert (refused.status_code, bool(refused.json()["fix"])) == (status, True)
    assert (await browser.get("/api/v1/me")).status_code == 401


async def test_a_provider_that_is_down(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    populated_app.provider.answers["/.well-known/openid-configuration"] = (502, {})
    refused = await browser.get(BEGIN)
    assert (refused.status_code, refused.json()["code"]) == (503, "provider_trouble")
    assert "Retry-After" in refused.headers
    told = await browser.get(BEGIN, headers=HTML)
    assert (told.status_code, "<p>" in told.text) == (503, True)


async def test_a_server_without_a_provider_says_so(harness: ControlHarness) -> None:
    api = build_api(service(harness), token="o" * 64, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with browser_of(api) as browser:
        for path in (BEGIN, f"{BEGIN}/callback?state=x"):
            refused = await browser.get(path)
            assert (refused.status_code, "no OpenID provider" in refused.json()["detail"]) == (404, True)
        assert (await browser.get("/api/v1/login")).json() == {"password": True, "oidc": None}
        page = (await browser.get("/login")).text
        assert ("crucible login --link" in page, "Log in with" in page) == (True, False)
        body = {"code": "x", "verifier": VERIFIER}
        assert (await browser.post("/api/v1/login", json=body)).status_code == 404


async def test_the_ways_to_log_in_are_told(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/api/v1/login")).json() == {"password": True, "oidc": "Example ID"}
    page = (await browser.get("/login")).text
    assert f'<a href="{BEGIN}">Log in with Example ID</a>' in page
    assert '<input id="password"' in page, "those who have a password need no provider"


async def test_tries_are_limited(populated_app: PopulatedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "ANONYMOUS", Rate(0.01, 3))
    api = build_api(populated_app.control, token="o" * 64, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with browser_of(api) as browser:
        paths = (BEGIN, f"{BEGIN}/callback", "/login", BEGIN, f"{BEGIN}/callback")
        statuses = [(await browser.get(path)).status_code for path in paths]
    assert statuses == [303, 401, 200, 429, 429]


# a command


async def test_a_command_is_logged_in_after_a_click(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    landed = await browser.get(await back(populated_app, browser, **COMMAND))
    assert "crucible_session" not in landed.headers["set-cookie"], "the browser itself stays out"
    (link,) = re.findall(r'<a href="([^"]*)">Log the command in</a>', landed.text)
    there = urlsplit(html.unescape(link))
    assert (there.scheme, there.netloc, there.path) == ("http", "127.0.0.1:43210", "/")
    given = dict(parse_qsl(there.query))
    assert given["state"] == "echo-1"
    async with browser_of(populated_app.api) as command:
        body = {"code": given["code"], "verifier": VERIFIER}
        session = (await command.post("/api/v1/login", json=body)).json()
        me = await command.get("/api/v1/me", headers={"Authorization": f"Bearer {session['token']}"})
        assert (session["user"], me.json()["user"]) == ("ada", "ada")
        again = await command.post("/api/v1/login", json=body)
        assert (again.status_code, "crucible login" in again.json()["fix"]) == (401, True)


@pytest.mark.parametrize(
    "more",
    [
        {"port": "80"},
        {"port": "70000"},
        {"port": "x"},
        {"port": None},
        {"challenge": None},
        {"challenge": "short"},
        {"challenge": "x" * 44},
        {"state": None},
        {"state": "a b"},
        {"state": "x" * 129},
    ],
)
async def test_commands_that_are_none(browser: httpx2.AsyncClient, more: dict[str, str | None]) -> None:
    query = {name: value for name, value in {**COMMAND, **more}.items() if value is not None}
    assert (await browser.get(BEGIN, params=query)).status_code == 422


@pytest.mark.parametrize("verifier", ["short", "x" * 129, "v" * 63 + "!", ""])
async def test_verifiers_that_are_none(browser: httpx2.AsyncClient, verifier: str) -> None:
    refused = await browser.post("/api/v1/login", json={"code": "x", "verifier": verifier})
    assert refused.status_code == 422


async def test_a_verifier_without_a_code(browser: httpx2.AsyncClient) -> None:
    for body in ({"verifier": VERIFIER}, {"name": "ada", "password": "x", "verifier": VERIFIER}):
        assert (await browser.post("/api/v1/login", json=body)).status_code == 422


async def test_every_answer_is_documented(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    paths = (await browser.get("/openapi.json", headers=populated_app.headers("owner"))).json()["paths"]
    for path in (BEGIN, f"{BEGIN}/callback"):
        told = paths[path]["get"]
        assert {"401", "403", "404", "422", "429", "503"} <= set(told["responses"])
        assert told["security"] == []


async def test_no_key_of_the_provider_is_asked_for_more_than_once(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    for _ in range(2):
        assert (await browser.get(await back(populated_app, browser))).status_code == 200
    assert populated_app.provider.asked.count("/keys") == 1
