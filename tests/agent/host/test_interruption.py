"""Test the watch on a metadata service, with a small real server and its faults."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.agent.metadata import Metadata
from tests.agent.waiting import poll

from crucible.agent.host import interruption
from crucible.agent.host.interruption import (
    BadMetadataUrl,
    InterruptionWatch,
    MetadataUrl,
    fetch_notice,
    start_interruption_watch,
)

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    metadata = Metadata()
    yield metadata
    metadata.close()


def ask_patiently(metadata: Metadata) -> float | None:
    """Raise the timeout: the machine of a test may be slower than a metadata service may be."""
    return fetch_notice(metadata.address, 10.0)


def test_nothing_announced(metadata: Metadata) -> None:
    assert ask_patiently(metadata) is None
    assert metadata.asked == 1


@pytest.mark.parametrize(
    ("said", "heard"), [(118.2, 118.2), (0, 0.0), (-3, 0.0), (None, 30.0), ("x", 30.0), (True, 30.0)]
)
def test_a_notice(metadata: Metadata, said: object, heard: float) -> None:
    metadata.announce(said)
    assert ask_patiently(metadata) == heard


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[1]",
        b'{"seconds": 5}',
        b'{"action": "terminate", "seconds": ' + b"9" * 400 + b"}",
        b"[" * 10_000,
        b'{"action": "terminate", "seconds": 5}' + b" " * interruption.MAX_ANSWER,
    ],
)
def test_an_answer_that_makes_no_sense_is_silence(metadata: Metadata, body: bytes) -> None:
    metadata.status, metadata.body = 200, body
    assert ask_patiently(metadata) is None


@pytest.mark.parametrize("status", [204, 301, 302, 401, 429, 500, 503])
def test_other_answers_are_silence(metadata: Metadata, status: int) -> None:
    metadata.announce(5)
    metadata.status = status
    assert ask_patiently(metadata) is None
    assert metadata.asked == 1


def test_an_answer_without_end_is_given_up(metadata: Metadata) -> None:
    metadata.status, metadata.drip = 200, True
    began = time.monotonic()
    assert fetch_notice(metadata.address, 0.3) is None
    assert time.monotonic() - began < 10


def test_nobody_there_is_silence(metadata: Metadata) -> None:
    metadata.close()
    assert ask_patiently(metadata) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "http://10.0.0.1/x",
        "http://example.com/x",
        "http://[2001:db8::1]/x",
        "http://127.0.0.1:99999/x",
        "file:///etc/passwd",
        "http+unix://relative/x",
        "",
    ],
)
def test_only_the_machine_itself_is_asked(url: str) -> None:
    with pytest.raises(BadMetadataUrl):
        MetadataUrl.parse(url)
    assert start_interruption_watch(url, lambda seconds: None) is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080/a/b?c=1", MetadataUrl("127.0.0.1", 8080, "/a/b?c=1")),
        ("http://localhost/x", MetadataUrl("127.0.0.1", 80, "/x")),
        ("http://169.254.169.254", MetadataUrl("169.254.169.254", 80, "/")),
        ("http://[::1]:81/x", MetadataUrl("::1", 81, "/x")),
        ("http://[fe80::1]/x", MetadataUrl("fe80::1", 80, "/x")),
        ("http+unix://%2Fa%20b%2Fc.sock/m/x?c=1", MetadataUrl("localhost", 80, "/m/x?c=1", "/a b/c.sock")),
    ],
)
def test_addresses_of_the_machine_itself(url: str, address: MetadataUrl) -> None:
    assert MetadataUrl.parse(url) == address


def test_no_address_no_watch() -> None:
    assert start_interruption_watch(None, lambda seconds: None) is None


def test_the_watch_tells_a_notice_once_and_one_that_is_earlier_again(metadata: Metadata) -> None:
    heard: list[float] = []
    watching = InterruptionWatch(metadata.address, heard.append, every=0.01)
    watching.start()
    poll(lambda: metadata.asked >= 3)
    assert heard == []
    metadata.announce(1000)
    poll(lambda: heard == [1000.0])
    asked = metadata.asked
    poll(lambda: metadata.asked >= asked + 3)
    metadata.announce(10)
    poll(lambda: heard == [1000.0, 10.0])
    watching.end()
    watching.join(20)
    assert not watching.is_alive()


def test_the_watch_outlives_bad_days(metadata: Metadata) -> None:
    heard: list[float] = []
    metadata.status = 500
    watching = InterruptionWatch(metadata.address, heard.append, every=0.01)
    watching.start()
    poll(lambda: metadata.asked >= 3)
    metadata.announce(7)
    poll(lambda: heard == [7.0])
    watching.end()
