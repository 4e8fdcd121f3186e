"""Sessions over HTTP: the link's page, the cookie, and what keeps other sites from using it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from tests.authorisation.populated_app import OWNERS, PopulatedApp
from tests.fast_passwords import quick_passwords
from tests.server.asgi import SocketClient

from crucible.core.people.identity import OWNER
from crucible.core.requests import UserChange
from crucible.server.http.middleware import SECURITY_HEADERS

__all__ = ["quick_passwords"]

HOST = "127.0.0.1"
OWN = {"Origin": f"http://{HOST}"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
PASSWORD = "correct + horse & bätterie"


@pytest.fixture
async def browser(populated_app: PopulatedApp) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(populated_app.api)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        yield client


async def link(browser: httpx2.AsyncClient) -> str:
    owner = {"Authorization": f"Bearer {OWNERS}"}
    made = await browser.post("/api/v1/login/links", headers=owner)
    assert made.status_code == 201
    return str(made.json()["url"])


def form_origin(page: httpx2.Response) -> dict[str, str]:
    """What a browser says of where a form of this page comes from (Fetch, "append a request `Origin` header")."""
    return {"Origin": "null"} if page.headers["referrer-policy"] == "no-referrer" else OWN


async def log_in(browser: httpx2.AsyncClient) -> str:
    """By the page of a link, as a person does; the session."""
    page = await browser.get(await link(browser))
    code = page.text.split('value="')[1].split('"')[0]
    done = await browser.post("/login", content=f"code={code}", headers=form_origin(page))
    assert done.status_code == 200, done.text
    return browser.cookies["crucible_session"]


async def test_a_browsers_session_is_no_bearer_token(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    session = await log_in(browser)
    assert (await browser.get("/api/v1/me")).status_code == 200
    browser.cookies.clear()
    refused = await browser.get("/api/v1/me", headers={"Authorization": f"Bearer {session}"})
    assert (refused.status_code, refused.json()["code"]) == (401, "not_allowed")
    protocols = {"sec-websocket-protocol": f"crucible.v1, crucible.bearer.{session}"}
    async with SocketClient(populated_app.api, "/api/v1/stream", protocols) as socket:
        assert (await socket.refusal())[0] == 401


async def test_a_program_gets_a_token_and_a_page_a_cookie(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    await populated_app.control.people.change_user(OWNER, "member", UserChange(password="correct horse battery"))
    body = {"name": "member", "password": "correct horse battery"}
    program = await browser.post("/api/v1/login", json=body)
    assert "set-cookie" not in program.headers
    bearer = {"Authorization": f"Bearer {program.json()['token']}"}
    assert (await browser.get("/api/v1/me", headers=bearer)).json()["via"] == "session"
    page = await browser.post("/api/v1/login", json=body, headers=OWN)
    assert page.json().get("token") is None
    assert (await browser.get("/api/v1/me")).json()["via"] == "browser"


async def test_looking_at_a_link_does_not_use_it_up(browser: httpx2.AsyncClient) -> None:
    url = await link(browser)
    for _ in range(2):
        page = await browser.get(url)
        assert (page.status_code, "<button>" in page.text) == (200, True)
        assert "set-cookie" not in page.headers


async def test_a_link_becomes_a_session_once(browser: httpx2.AsyncClient) -> None:
    url = await link(browser)
    code = url.split("code=")[1]
    first = await browser.post("/login", content=f"code={code}", headers=OWN)
    assert "logged in as owner" in first.text
    cookie = first.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/", "max-age="))
    assert (await browser.post("/login", content=f"code={code}", headers=OWN)).status_code == 401


async def test_a_share_link_shows_a_browser_one_job_as_often_as_it_is_opened(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    made = await browser.post(f"/api/v1/jobs/{populated_app.job}/share", headers={"Authorization": f"Bearer {OWNERS}"})
    url, token = made.json()["url"], made.json()["token"]
    assert url == f"http://{HOST}/login?code={token}"
    for _ in range(2):
        page = await browser.get(url)
        opened = await browser.post("/login", content=f"code={token}", headers=form_origin(page))
        assert (opened.status_code, f'href="/api/v1/jobs/{populated_app.job}"' in opened.text) == (200, True)
    assert (await browser.get(f"/api/v1/jobs/{populated_app.job}")).json()["id"] == populated_app.job
    assert (await browser.get("/api/v1/me")).json()["via"] == "share"
    assert (await browser.post(f"/api/v1/jobs/{populated_app.job}/cancel", headers=OWN)).status_code == 403


async def test_the_address_of_a_page_is_told_to_no_other_site(browser: httpx2.AsyncClient) -> None:
    """It may hold a code."""
    assert (await browser.get(await link(browser))).headers["referrer-policy"] == "same-origin"


async def test_a_session_reads_and_changes_from_our_own_page(browser: httpx2.AsyncClient) -> None:
    await log_in(browser)
    assert (await browser.get("/api/v1/me")).json()["via"] == "browser"
    assert (await browser.post("/api/v1/projects", json={"name": "gamma"}, headers=OWN)).status_code == 201


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
async def test_a_cookie_that_another_site_sends_along_changes_nothing(
    browser: httpx2.AsyncClient, origin: str | None
) -> None:
    await log_in(browser)
    headers = {} if origin is None else {"Origin": origin}
    answer = await browser.post("/api/v1/projects", json={"name": "gamma"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_site")


NEIGHBOUR = f"http://{HOST}:18600"
"""A page at another port of this computer: to browsers it is of the same site, so its requests have the cookie."""


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/v1/jobs/{job}/cancel", {"Content-Type": "text/plain"}),
        ("/api/v1/jobs/{job}/cancel", {"Content-Type": "application/x-www-form-urlencoded"}),
        ("/api/v1/jobs", {"Content-Type": "text/plain"}),
        ("/login", {"Content-Type": "application/x-www-form-urlencoded"}),
        ("/api/v1/login/links", {"Content-Type": "multipart/form-data; boundary=x"}),
    ],
)
@pytest.mark.parametrize("origin", [NEIGHBOUR, "http://localhost:18600", "null"])
async def test_what_chromium_sends_for_the_forms_of_a_neighbour_is_refused(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient, path: str, sent: dict[str, str], origin: str
) -> None:
    await log_in(browser)
    headers = {**sent, "Origin": origin, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}
    answer = await browser.post(path.format(job=populated_app.job), content="{}=", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_site")


async def test_what_chromium_sends_for_the_scripts_sockets_and_frames_of_a_neighbour(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient
) -> None:
    cookie = {"cookie": f"crucible_session={await log_in(browser)}"}
    loaded = await browser.get("/api/v1/me", headers={"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"})
    assert loaded.headers["cross-origin-resource-policy"] == "same-origin"
    assert loaded.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in loaded.headers["content-security-policy"]
    assert "access-control-allow-origin" not in loaded.headers
    asked = await browser.options(
        "/api/v1/jobs", headers={"Origin": NEIGHBOUR, "Access-Control-Request-Method": "POST"}
    )
    assert asked.status_code == 403
    for path in ("/api/v1/stream", f"/api/v1/jobs/{populated_app.job}/stream"):
        async with SocketClient(populated_app.api, path, {**cookie, "origin": NEIGHBOUR}) as socket:
            assert await socket.status() == 403


async def test_a_socket_needs_the_origin_too(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    cookie = {"cookie": f"crucible_session={await log_in(browser)}"}
    async with SocketClient(populated_app.api, "/api/v1/stream", cookie) as socket:
        assert await socket.status() == 403
    async with SocketClient(populated_app.api, "/api/v1/stream", {**cookie, "origin": f"http://{HOST}"}) as socket:
        assert await socket.status() == 101


async def test_logging_out_ends_the_session(browser: httpx2.AsyncClient) -> None:
    session = await log_in(browser)
    assert (await browser.post("/api/v1/logout", headers=OWN)).status_code == 204
    assert "crucible_session" not in browser.cookies
    again = await browser.get("/api/v1/me", headers={"Authorization": f"Bearer {session}"})
    assert again.status_code == 401


# Name and password, in a browser


async def fill_in(browser: httpx2.AsyncClient, name: str, password: str, **headers: str) -> httpx2.Response:
    """As a browser sends the form of the page."""
    form = urlencode({"name": name, "password": password})
    sent = {"Content-Type": "application/x-www-form-urlencoded", **HTML, **OWN, **headers}
    return await browser.post("/login", content=form, headers=sent)


async def test_the_page_asks_for_name_and_password(browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/login", headers=HTML)).text
    for one, kind, fills in (("name", "", "username"), ("password", ' type="password"', "current-password")):
        assert f'<label for="{one}">' in page
        assert f'<input id="{one}" name="{one}"{kind}' in page
        assert f'autocomplete="{fills}"' in page
    assert '<form method="post" action="/login">' in page
    assert 'role="alert"' not in page


async def test_a_person_with_only_a_browser_logs_in(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    await populated_app.control.people.add_user(OWNER, "ada", password=PASSWORD)
    done = await fill_in(browser, " ada ", PASSWORD)
    assert (done.status_code, "logged in as ada" in done.text) == (200, True)
    assert "samesite=strict" in done.headers["set-cookie"].lower()
    me = (await browser.get("/api/v1/me")).json()
    assert (me["user"], me["via"]) == ("ada", "browser")


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "not hers, and long"), ("nobody", PASSWORD), ("a\0b", "x" * 12)]
)
async def test_a_wrong_password_shows_the_form_again(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient, name: str, password: str
) -> None:
    await populated_app.control.people.add_user(OWNER, "ada", password=PASSWORD)
    refused = await fill_in(browser, name, password)
    assert refused.status_code == (422 if "\0" in name else 401)
    assert '<div role="alert" id="refused">' in refused.text
    assert 'aria-describedby="refused"' in refused.text
    assert '<form method="post" action="/login">' in refused.text
    assert "set-cookie" not in refused.headers
    assert password not in refused.text


async def test_the_name_comes_back_as_text(browser: httpx2.AsyncClient) -> None:
    refused = await fill_in(browser, '"><script>alert(1)</script>', "x" * 12)
    assert (refused.status_code, "<script>" in refused.text, "&lt;script&gt;" in refused.text) == (401, False, True)


async def test_guessing_gets_slower_in_the_form_too(populated_app: PopulatedApp, browser: httpx2.AsyncClient) -> None:
    await populated_app.control.people.add_user(OWNER, "ada", password=PASSWORD)
    answers = [await fill_in(browser, "ada", "a wrong password") for _ in range(20)]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert 'role="alert"' in refused.text
    assert (await fill_in(browser, "ada", PASSWORD)).status_code == 429


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
async def test_the_form_of_another_site_logs_nobody_in(
    populated_app: PopulatedApp, browser: httpx2.AsyncClient, origin: str
) -> None:
    await populated_app.control.people.add_user(OWNER, "ada", password=PASSWORD)
    refused = await fill_in(browser, "ada", PASSWORD, Origin=origin)
    assert (refused.status_code, refused.json()["code"]) == (403, "foreign_site")
    assert "set-cookie" not in refused.headers


async def test_programs_are_told_as_programs(browser: httpx2.AsyncClient) -> None:
    for form, status in ((b"name=ada&password=x", 401), (b"name=ada", 422), (b"code=x", 401)):
        refused = await browser.post("/login", content=form)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert refused.json()["fix"]


async def test_a_used_link_is_told_as_a_page(browser: httpx2.AsyncClient) -> None:
    refused = await browser.post("/login", content=b"code=x", headers={**HTML, **OWN})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert '<a href="/login">' in refused.text


async def test_a_browser_says_that_our_own_forms_are_ours(browser: httpx2.AsyncClient) -> None:
    """With `no-referrer` it would send `Origin: null`, which is refused."""
    for path in ("/login", "/login?code=x"):
        assert (await browser.get(path)).headers["referrer-policy"] == "same-origin"
    assert (await browser.get("/healthz")).headers["referrer-policy"] == "no-referrer"


async def test_the_pages_style_is_all_that_they_may_have(browser: httpx2.AsyncClient) -> None:
    page = await browser.get("/login")
    style = page.text.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert policy == f"{SECURITY_HEADERS['Content-Security-Policy']}; style-src 'sha256-{digest}'"
    assert not re.search(r" (style|on[a-z]+)=", page.text)


async def test_the_page_repeats_nothing_that_could_be_markup(browser: httpx2.AsyncClient) -> None:
    page = await browser.get("/login", params={"code": '"><script>alert(1)</script>'})
    assert "<script>" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "ada"},
        {"password": "x"},
        {"name": "ada", "password": "x", "code": "y"},
        {"code": ""},
        {"code": "x" * 201},
        {"name": 7, "password": []},
        {"name": "ada", "password": "x", "more": 1},
        [],
        "text",
    ],
)
async def test_credentials_that_are_none(browser: httpx2.AsyncClient, body: Any) -> None:
    answer = await browser.post("/api/v1/login", json=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]


@pytest.mark.parametrize("form", [b"", b"code=", b"code=%ff%fe", b"\xff\xfe", b"a=1&b=2&c=3&d=4&code=x"])
async def test_forms_that_are_none(browser: httpx2.AsyncClient, form: bytes) -> None:
    assert (await browser.post("/login", content=form, headers=OWN)).status_code in (401, 422)


async def test_a_form_that_is_too_long(browser: httpx2.AsyncClient) -> None:
    assert (await browser.post("/login", content=b"code=" + b"x" * 17_000, headers=OWN)).status_code == 413


async def test_what_was_sent_is_not_repeated(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post("/api/v1/login", json={"name": "ada", "password": ["hunter2-hunter2"]})
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("what", ["revoked", "removed", "disabled"])
async def test_a_socket_ends_with_the_right_to_it(populated_app: PopulatedApp, what: str) -> None:
    member, people = await populated_app.identity("member"), populated_app.control.people
    async with SocketClient(
        populated_app.api, f"/api/v1/jobs/{populated_app.job}/stream", populated_app.headers("member")
    ) as socket:
        await socket.accepted()
        if what == "revoked":
            await populated_app.control.tokens.revoke(OWNER, str(member.token))
        elif what == "removed":
            await people.remove_member(OWNER, "alpha", "member")
        else:
            await people.change_user(OWNER, "member", UserChange(disabled=True))
        _, code = await socket.frames_until_close()
    assert code == 1008
