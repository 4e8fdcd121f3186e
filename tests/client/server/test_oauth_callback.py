"""The listener that a browser hands a code to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from crucible.client.server.oauth_callback import BrowserLogin
from crucible.core.errors import TimedOut
from crucible.core.people.openid import make_challenge

SERVER = "https://crucible.example.org"

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def handover() -> Iterator[BrowserLogin]:
    with BrowserLogin(SERVER) as handover:
        yield handover


def asked(handover: BrowserLogin) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(handover.url).query))


def brought(handover: BrowserLogin, *requests: dict[str, str], headers: dict[str, str] | None = None) -> list[int]:
    """A browser that comes with these parameters, one after the other; what it is answered."""
    with httpx2.Client(base_url=f"http://127.0.0.1:{handover.port}", trust_env=False) as browser:
        return [browser.get("/", params=query, headers=headers or {}).status_code for query in requests]


def test_the_browser_is_sent_with_a_challenge_and_a_port_and_nothing_secret(handover: BrowserLogin) -> None:
    assert handover.url.startswith(f"{SERVER}/api/v1/login/oidc?")
    query = asked(handover)
    assert query["port"] == str(handover.port)
    assert query["challenge"] == make_challenge(handover.verifier)
    assert handover.verifier not in handover.url
    with BrowserLogin(SERVER) as other:
        assert asked(other)["state"] != query["state"]
        assert other.verifier != handover.verifier


def test_it_listens_on_this_computer_alone(handover: BrowserLogin) -> None:
    assert handover._listener.server_address[0] == "127.0.0.1"


def test_the_code_that_a_browser_brings(handover: BrowserLogin) -> None:
    with ThreadPoolExecutor(1) as pool:
        statuses = pool.submit(brought, handover, {"code": "abc", "state": asked(handover)["state"]})
        assert handover.code(10.0) == "abc"
        assert statuses.result() == [200]


def test_what_else_knocks_is_sent_away(handover: BrowserLogin) -> None:
    state = asked(handover)["state"]
    knocks = ({}, {"code": "evil"}, {"code": "evil", "state": "wrong"}, {"state": state}, {"code": "", "state": state})
    with ThreadPoolExecutor(1) as pool:
        statuses = pool.submit(brought, handover, *knocks, {"code": "good", "state": state})
        assert handover.code(10.0) == "good"
        assert statuses.result() == [404] * len(knocks) + [200]


def test_a_page_that_reaches_us_by_another_name_is_sent_away(handover: BrowserLogin) -> None:
    """DNS rebinding."""
    good = {"code": "good", "state": asked(handover)["state"]}
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(brought, handover, good, headers={"Host": f"evil.example:{handover.port}"})
        with pytest.raises(TimedOut):
            handover.code(1.0)
        assert refused.result() == [404]


def test_a_connection_that_breaks_off_is_no_news(handover: BrowserLogin, capfd: pytest.CaptureFixture[str]) -> None:
    def knock() -> None:
        with socket.create_connection(("127.0.0.1", handover.port)) as peer:
            peer.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        brought(handover, {"code": "good", "state": asked(handover)["state"]})

    thread = threading.Thread(target=knock)
    thread.start()
    assert handover.code(10.0) == "good"
    thread.join()
    assert capfd.readouterr() == ("", "")


def test_nobody_comes() -> None:
    times = iter((0.0, 1.0, 301.0))
    with BrowserLogin(SERVER, now=lambda: next(times)) as handover:
        with pytest.raises(TimedOut, match="within 300 s") as caught:
            handover.code(300.0)
        assert "--token-stdin" in caught.value.fix
