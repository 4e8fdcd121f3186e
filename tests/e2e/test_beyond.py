"""A server that others reach: encrypted, or behind a proxy, and never without users."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.certificates import make_certificate
from tests.e2e.terminal import Terminal
from tests.harness import until


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(tmp_path) as terminal:
        yield terminal


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def give_user(terminal: Terminal) -> str:
    """While only this computer reaches it, the owner lets somebody in."""
    terminal.crucible.start()
    terminal.ok("users", "add", "ada")
    token = terminal.ok("tokens", "create", "laptop", "--user", "ada", "--scope", "read").strip()
    terminal.ok("down", "--yes")
    return token


def serve(terminal: Terminal, port: int, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "crucible.app", "serve", "--port", str(port)]
    return subprocess.Popen(command, env={**terminal.crucible.env, **env}, stderr=subprocess.PIPE, text=True)


@contextmanager
def serving(terminal: Terminal, port: int, **env: str) -> Iterator[None]:
    process = serve(terminal, port, **env)
    found = terminal.home / "server.json"
    try:
        until(lambda: found.exists() or None, what="the server")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_a_server_that_encrypts_is_used_by_its_name(terminal: Terminal, tmp_path: Path) -> None:
    token, port = give_user(terminal), free_port()
    certificate, key = make_certificate(tmp_path)
    settings = {
        "CRUCIBLE_TLS_CERTIFICATE": str(certificate),
        "CRUCIBLE_TLS_KEY": str(key),
        "CRUCIBLE_PUBLIC_URL": f"https://localhost:{port}",
        "SSL_CERT_FILE": str(certificate),
    }
    with serving(terminal, port, **settings):
        ada = {
            "CRUCIBLE_SERVER": f"https://localhost:{port}",
            "CRUCIBLE_TOKEN": token,
            "SSL_CERT_FILE": str(certificate),
        }
        assert terminal.ok("whoami", "--quiet", env=ada).strip() == "ada"
        untrusting = terminal.run("whoami", env={**ada, "SSL_CERT_FILE": ""})
        assert untrusting.returncode == 9
        assert terminal.ok("run", "--code", "print(1 + 1)", env={"SSL_CERT_FILE": str(certificate)}).strip() == "2"


def test_a_person_with_only_a_browser_logs_in(terminal: Terminal, tmp_path: Path) -> None:
    terminal.ok("users", "add", "ada", "--password-stdin", input="a good long password\n")
    terminal.ok("down", "--yes")
    port = free_port()
    certificate, key = make_certificate(tmp_path)
    url = f"https://localhost:{port}"
    settings = {"TLS_CERTIFICATE": str(certificate), "TLS_KEY": str(key), "PUBLIC_URL": url}
    trusting = ssl.create_default_context(cafile=str(certificate))
    with (
        serving(terminal, port, **{f"CRUCIBLE_{name}": value for name, value in settings.items()}),
        httpx2.Client(base_url=url, verify=trusting, headers={"Accept": "text/html", "Origin": url}) as browser,
    ):
        assert 'type="password"' in browser.get("/login").text
        wrong = browser.post("/login", data={"name": "ada", "password": "not hers, and long"})
        assert (wrong.status_code, "is wrong" in wrong.text) == (401, True)
        right = browser.post("/login", data={"name": "ada", "password": "a good long password"})
        assert (right.status_code, "logged in as ada" in right.text) == (200, True)
        assert "secure" in right.headers["set-cookie"].lower()
        assert browser.get("/api/v1/me").json()["user"] == "ada"


def test_behind_a_proxy(terminal: Terminal) -> None:
    token, port = give_user(terminal), free_port()
    ada = {"Authorization": f"Bearer {token}"}
    with (
        serving(terminal, port, CRUCIBLE_BEHIND_PROXY="true", CRUCIBLE_PUBLIC_URL="https://crucible.example.org"),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=ada) as http,
    ):
        assert http.get("/api/v1/me", headers={"Host": "crucible.example.org"}).json()["user"] == "ada"
        assert http.get("/api/v1/me", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("env", "code", "said"),
    [
        (
            {"CRUCIBLE_BEHIND_PROXY": "true", "CRUCIBLE_PUBLIC_URL": "https://crucible.example.org"},
            7,
            "before it has users",
        ),
        ({"CRUCIBLE_BEHIND_PROXY": "true"}, 7, "without encryption"),
        ({"CRUCIBLE_TLS_KEY": "/nothing.pem"}, 2, "needs its key"),
        ({"CRUCIBLE_TLS_KEY": "/nothing.pem", "CRUCIBLE_TLS_CERTIFICATE": "/nothing.pem"}, 2, "cannot be used"),
    ],
)
def test_what_is_refused(terminal: Terminal, env: dict[str, str], code: int, said: str) -> None:
    process = serve(terminal, free_port(), **env)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert said in json.loads(err.splitlines()[-1])["error"]["what"]
