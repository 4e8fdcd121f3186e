from __future__ import annotations

import pytest

from crucible.client.transport.address import is_loopback, proxy_for, read_address
from crucible.core.errors import BadInput
from crucible.wire.http.client import BaseUrl, Proxy

THERE = BaseUrl("https", "crucible.example", 443)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080", BaseUrl("http", "127.0.0.1", 8080)),
        ("https://crucible.example", THERE),
        ("https://crucible.example/below/it/", BaseUrl("https", "crucible.example", 443, "/below/it")),
        ("http://[::1]:9", BaseUrl("http", "::1", 9)),
        ("http://bücher.example/ä", BaseUrl("http", "bücher.example", 80, "/%C3%A4")),
    ],
)
def test_the_parts_of_a_url(url: str, address: BaseUrl) -> None:
    assert read_address(url) == address


@pytest.mark.parametrize(
    "url",
    ["", "http://", "crucible.example", "ftp://a", "http://[::1", "http://a:port", "http://a:70000", "http:// a"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput, match="not the address"):
        read_address(url)


def test_the_origin_names_host_and_port() -> None:
    assert read_address("http://[::1]").origin == "http://[::1]:80"
    assert THERE.origin == "https://crucible.example:443"


def test_this_computer_is_told_from_others() -> None:
    assert is_loopback("http://localhost:1")
    assert is_loopback("http://[::1]:1")
    assert not is_loopback("http://127.0.0.1.example")


def test_a_proxy_is_used_beyond_this_computer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert proxy_for(THERE) == Proxy("proxy.example", 3128, {})
    assert proxy_for(BaseUrl("https", "127.0.0.1", 443)) is None
    assert proxy_for(BaseUrl("http", "crucible.example", 80)) is None


def test_a_proxy_for_everything_and_names_that_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "proxy.example")
    assert proxy_for(THERE) == Proxy("proxy.example", 80, {})
    monkeypatch.setenv("no_proxy", "crucible.example")
    assert proxy_for(THERE) is None


def test_a_proxy_hears_the_name_and_password_that_stand_in_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://me:p%40ss@proxy.example")
    assert proxy_for(THERE) == Proxy("proxy.example", 80, {"Proxy-Authorization": "Basic bWU6cEBzcw=="})


@pytest.mark.parametrize("url", ["socks5://proxy.example", "https://proxy.example", "http://", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("https_proxy", url)
    with pytest.raises(BadInput, match="proxy") as told:
        proxy_for(THERE)
    assert "NO_PROXY" in (told.value.fix or "")
