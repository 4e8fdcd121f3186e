"""Signing in with an OpenID provider that runs on this computer: by a browser, and by the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.e2e.terminal import Terminal
from tests.e2e.test_beyond import free_port, serve, serving
from tests.openid_provider import ADA, CLIENT, EVE, SECRET, OpenIdProvider, served

BROWSER = '''#!{python}
"""A browser: follows redirects with cookies, and clicks the link of the last page."""
import html, re, sys
import httpx2

with httpx2.Client(follow_redirects=True, trust_env=False) as http:
    page = http.get(sys.argv[1], headers={{"Accept": "text/html"}})
    links = re.findall(r'<a href="([^"]*)">Log the command in</a>', page.text)
    if not links:
        sys.exit(page.text)
    http.get(html.unescape(links[0]))
'''


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    with served(OpenIdProvider()) as provider:
        yield provider


@pytest.fixture(autouse=True)
def ada_again(provider: OpenIdProvider) -> None:
    provider.person = ADA
    provider.token_more = {}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, provider: OpenIdProvider) -> Iterator[Terminal]:
    env = {
        "CRUCIBLE_OIDC_ISSUER": provider.issuer,
        "CRUCIBLE_OIDC_CLIENT_ID": CLIENT,
        "CRUCIBLE_OIDC_CLIENT_SECRET": SECRET,
        "CRUCIBLE_OIDC_NAME": "Example ID",
    }
    with Terminal(tmp_path_factory.mktemp("openid"), **env) as terminal:
        terminal.crucible.start()
        terminal.ok("users", "add", "ada", "--email", str(ADA["email"]))
        terminal.ok("projects", "add", "vision")
        terminal.ok("projects", "grant", "vision", "ada", "member")
        yield terminal


@pytest.fixture
def url(terminal: Terminal) -> str:
    return str(json.loads(terminal.home.joinpath("server.json").read_text())["url"])


@pytest.fixture
def browser(url: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=url, follow_redirects=True, trust_env=False) as http:
        yield http


@pytest.fixture
def elsewhere(terminal: Terminal, tmp_path: Path) -> dict[str, str]:
    """Another person's computer, with a browser."""
    program = tmp_path / "browser"
    program.write_text(BROWSER.format(python=sys.executable))
    program.chmod(0o755)
    return {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "CRUCIBLE_HOME": str(tmp_path / "none"),
        "BROWSER": str(program),
    }


def test_a_browser_signs_in_and_gets_her_own(browser: httpx2.Client) -> None:
    page = browser.get("/login").text
    assert "Log in with Example ID" in page
    landed = browser.get(unescape(re.findall(r'href="([^"]*)"', page)[0]), params={"next": "/api/v1/projects"})
    assert "You are logged in as ada." in landed.text
    assert urlsplit(str(landed.url)).path == "/api/v1/login/oidc/callback"
    assert 'content="0;url=/api/v1/projects"' in landed.text
    assert browser.get("/api/v1/me").json()["user"] == "ada"
    assert [item["name"] for item in browser.get("/api/v1/projects").json()["items"]] == ["vision"]


def test_who_was_not_let_in_is_told_so(browser: httpx2.Client, provider: OpenIdProvider) -> None:
    provider.person = EVE
    refused = browser.get("/api/v1/login/oidc", headers={"Accept": "text/html"})
    assert (refused.status_code, "You are not a user of this server." in refused.text) == (403, True)
    assert browser.get("/api/v1/me").status_code == 401


def test_a_token_of_another_audience_does_not_let_in(browser: httpx2.Client, provider: OpenIdProvider) -> None:
    provider.token_more = {"aud": "another"}
    refused = browser.get("/api/v1/login/oidc")
    assert (refused.status_code, refused.json()["code"]) == (401, "not_vouched")


@pytest.fixture
def keyboard() -> Iterator[int]:
    """Somebody sits at a terminal."""
    ours, theirs = os.openpty()
    yield theirs
    for end in (ours, theirs):
        os.close(end)


def test_the_command_signs_in_by_the_browser(
    terminal: Terminal, url: str, elsewhere: dict[str, str], keyboard: int
) -> None:
    done = terminal.run("login", url, "--json", env=elsewhere, stdin=keyboard)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["user"] == "ada"
    assert "Sign in with Example ID" in done.stderr
    assert terminal.ok("whoami", "--quiet", env=elsewhere).strip() == "ada"
    terminal.ok("logout", env=elsewhere)
    left = {each.name for each in Path(elsewhere["CRUCIBLE_HOME"]).iterdir()}
    assert left <= {"logins.json"}, "no server was started there"


def test_without_a_browser_the_address_is_printed(terminal: Terminal, url: str, elsewhere: dict[str, str]) -> None:
    command = [sys.executable, "-m", "crucible", "login", url, "--oidc", "--no-browser"]
    env = {**terminal.crucible.env, **elsewhere, "BROWSER": "/bin/false"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, cwd=terminal.folder) as waiting:
        assert waiting.stderr is not None
        said = [waiting.stderr.readline() for _ in range(3)]
        assert "ssh -L" in said[2]
        subprocess.run([elsewhere["BROWSER"], said[1].strip()], check=True, timeout=30)
        _, rest = waiting.communicate(timeout=30)
    assert (waiting.returncode, f"Logged in to {url} as ada" in rest) == (0, True)


def test_where_nobody_sits_nobody_is_waited_for(terminal: Terminal, url: str, elsewhere: dict[str, str]) -> None:
    done = terminal.run("login", url, env=elsewhere, input="")
    assert (done.returncode, "--oidc" in done.stderr, "--token-stdin" in done.stderr) == (2, True, True)


@pytest.mark.parametrize("words", [("--oidc", "--name", "ada"), ("--no-browser", "--token-stdin")])
def test_ways_that_exclude_each_other(terminal: Terminal, url: str, words: tuple[str, ...]) -> None:
    done = terminal.run("login", url, *words, input="\n")
    assert (done.returncode, "exclude each other" in done.stderr) == (2, True)


def test_a_server_that_has_no_provider(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.crucible.start()
        url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
        done = terminal.run("login", url, "--oidc")
        assert (done.returncode, "has no OpenID provider" in done.stderr) == (2, True)


def test_jobs_do_not_get_the_servers_secret_at_the_provider(terminal: Terminal) -> None:
    code = "import os; print(sorted(name for name in os.environ if 'OIDC' in name))"
    assert terminal.ok("run", "--code", code).strip() == "[]"


def settings_of(provider: OpenIdProvider, **more: str) -> dict[str, str]:
    return {
        "CRUCIBLE_OIDC_ISSUER": provider.issuer,
        "CRUCIBLE_OIDC_CLIENT_ID": CLIENT,
        "CRUCIBLE_OIDC_CLIENT_SECRET": SECRET,
        "CRUCIBLE_BEHIND_PROXY": "true",
        "CRUCIBLE_PUBLIC_URL": "https://crucible.example.org",
        **more,
    }


def test_a_provider_alone_is_not_enough_to_be_reached_by_others(tmp_path: Path, provider: OpenIdProvider) -> None:
    """Nobody could come in: there is no user, and none is made."""
    with Terminal(tmp_path) as terminal:
        process = serve(terminal, free_port(), **settings_of(provider))
        _, err = process.communicate(timeout=30)
        assert (process.returncode, "before it has users" in err) == (7, True)
        assert "oidc_create_users" in err


def test_a_provider_whose_people_become_users_is(tmp_path: Path, provider: OpenIdProvider) -> None:
    more: dict[str, Any] = {"CRUCIBLE_OIDC_CREATE_USERS": "vision", "CRUCIBLE_OIDC_DOMAINS": "example.org"}
    port = free_port()
    public = {"Host": "crucible.example.org"}
    with (
        Terminal(tmp_path) as terminal,
        serving(terminal, port, **settings_of(provider, **more)),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=public, trust_env=False) as http,
    ):
        away = http.get("/api/v1/login/oidc")
        cookie = away.headers["set-cookie"]
        assert "Secure" in cookie
        back = provider.browse(away.headers["location"])
        assert back.startswith("https://crucible.example.org/api/v1/login/oidc/callback?")
        own = {"Cookie": cookie.split(";")[0]}
        landed = http.get(f"/api/v1/login/oidc/callback?{urlsplit(back).query}", headers=own)
        session = landed.headers["set-cookie"].split(";")[0]
        me = http.get("/api/v1/me", headers={"Cookie": session}).json()
        assert (me["user"], me["projects"]) == (ADA["email"], {"vision": "member"})


def test_the_record_tells_it(terminal: Terminal, browser: httpx2.Client) -> None:
    assert browser.get("/api/v1/login/oidc").status_code == 200
    told = json.loads(terminal.ok("audit", "--json"))["items"]
    assert {"user.tie", "browser.create"} <= {item["action"] for item in told}
