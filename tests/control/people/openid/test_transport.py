"""Asking over HTTP: a provider that is slow, down, or sends no end of it holds nobody up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import httpx2
import pytest
from tests.openid_provider import OpenIdProvider, served

from crucible.control.people.openid.transport import MAX_RESPONSE_BYTES, BoundedTransport, ProviderTrouble, get

pytestmark = pytest.mark.enable_socket

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def speaking(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that does to every connection what `say` does."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with closing(peer), suppress(OSError):
                    peer.recv(65536)
                    say(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/keys"


def test_a_question_and_its_answer() -> None:
    with served(OpenIdProvider()) as provider:
        assert get(BoundedTransport(), f"{provider.issuer}/.well-known/openid-configuration") == provider.metadata()
        with httpx2.Client(transport=BoundedTransport()) as http:
            refused = http.post(f"{provider.issuer}/token", data={"code": "1"}, headers={"Authorization": "Basic x"})
        assert (refused.status_code, refused.json()) == (401, {"error": "invalid_client"})


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff\xfe", b"[" * 100_000, b'{"a":', b"\x1f\x8b\x08"])
def test_answers_that_are_no_json(body: bytes) -> None:
    with served(OpenIdProvider(answers={"/keys": (200, body)})) as provider, pytest.raises(ProviderTrouble) as caught:
        get(BoundedTransport(), f"{provider.issuer}/keys")
    assert "not JSON" in caught.value.why


def test_an_answer_that_is_too_large() -> None:
    body = b'"' + b"x" * MAX_RESPONSE_BYTES + b'"'
    with (
        served(OpenIdProvider(answers={"/keys": (200, body)})) as provider,
        pytest.raises(ProviderTrouble, match="failed at"),
    ):
        get(BoundedTransport(), f"{provider.issuer}/keys")


def test_an_answer_without_end() -> None:
    def pour(peer: socket.socket) -> None:
        peer.sendall(OK + b"\r\n")
        while True:
            peer.sendall(b"x" * 65536)

    with speaking(pour) as url, pytest.raises(ProviderTrouble) as caught:
        get(BoundedTransport(), url)
    assert str(MAX_RESPONSE_BYTES) in caught.value.why


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with pytest.raises(ProviderTrouble) as caught:
        get(BoundedTransport(), url)
    assert caught.value.exit_code == 9


def test_a_provider_that_says_nothing() -> None:
    silent = threading.Event()
    with speaking(lambda peer: silent.wait(10) and None) as url:
        began = time.monotonic()
        with pytest.raises(ProviderTrouble):
            get(BoundedTransport(seconds=0.4), url)
        silent.set()
        assert time.monotonic() - began < 5


def test_a_provider_that_answers_drop_by_drop() -> None:
    def drip(peer: socket.socket) -> None:
        peer.sendall(OK + b"Content-Length: 100000\r\n\r\n")
        while not over.wait(0.02):
            peer.sendall(b" ")

    over = threading.Event()
    with speaking(drip) as url:
        with pytest.raises(ProviderTrouble, match="provider failed") as caught:
            get(BoundedTransport(seconds=0.4), url)
        over.set()
    assert "within 0.4 s" in caught.value.why


def test_a_provider_whose_headers_come_drop_by_drop() -> None:
    def drip(peer: socket.socket) -> None:
        peer.sendall(OK)
        while not over.wait(0.02):
            peer.sendall(b"X-A: b\r\n")

    over = threading.Event()
    with speaking(drip) as url:
        with pytest.raises(ProviderTrouble) as caught:
            get(BoundedTransport(seconds=0.4), url)
        over.set()
    assert "within 0.4 s" in caught.value.why


def test_the_deadline_is_the_transports_and_no_clients() -> None:
    """Authlib's client brings a shorter one for each step."""

    def late(peer: socket.socket) -> None:
        threading.Event().wait(0.2)
        peer.sendall(OK + b"Content-Length: 2\r\n\r\n{}")

    with speaking(late) as url, httpx2.Client(transport=BoundedTransport(), timeout=0.02) as http:
        assert http.get(url).json() == {}


def test_it_does_not_follow_to_other_places() -> None:
    def elsewhere(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\n{}")

    with speaking(elsewhere) as url, httpx2.Client(transport=BoundedTransport()) as http:
        reply = http.get(url)
        assert (reply.status_code, reply.json()) == (302, {})


@pytest.mark.parametrize("url", ["http://[::1", "http://\x00/", "text"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ProviderTrouble):
        get(BoundedTransport(), url)
