"""Test a mailbox client: which documents it accepts, when it has contact, and what it requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible.agent.link.channel import DesiredAttempt
from crucible.agent.link.connection import Refused, Unreachable
from crucible.agent.storelink.channel import StoreChannel
from crucible.agent.storelink.client import QUIET_SECONDS, MailboxClient
from crucible.agent.storelink.mailbox import FolderMailbox
from crucible.agent.storelink.urls import SignedUrls
from crucible.wire.documents.mailbox import (
    SECRETS,
    ControlDocument,
    Heartbeat,
    control_document_name,
    decode_heartbeat,
    encode_control_document,
    heartbeat_name,
    host_key,
)

KEY = host_key(b"nonce", "mch-1")
ME = "att-1.0"


class Side:
    """A client, its clock, and a writer for the control plane's side."""

    def __init__(self, folder: Path, urls: SignedUrls | None = None) -> None:
        self.now = 1000.0
        self.mail = FolderMailbox(folder, "mch-1")
        self.mail.pace = 0.001
        self.party = MailboxClient(self.mail, ME, KEY, urls, clock=lambda: self.now)

    def alive(self) -> Heartbeat:
        raw = self.mail.get(heartbeat_name(ME), 10_000)
        assert raw is not None
        return decode_heartbeat(KEY, ME, raw)

    def say(self, number: int, count: int = 1, life: str | None = None, key: bytes = KEY, **body: object) -> None:
        urls = body.pop("urls", {})
        assert isinstance(urls, dict)
        down = ControlDocument(number, life or self.alive().life, count, body, urls)
        raw = encode_control_document(key, ME, down, encrypted="secrets" in body)
        self.mail.put(control_document_name(ME), raw, len(raw))


@pytest.fixture
def side(tmp_path: Path) -> Side:
    side = Side(tmp_path)
    side.party.send_heartbeat()
    return side


def test_signs_of_life_come_in_their_time(side: Side) -> None:
    assert side.alive().count == 1
    side.now += 9.0
    side.party.send_heartbeat()
    assert side.alive().count == 1
    side.now += 1.0
    side.party.send_heartbeat()
    assert side.alive().count == 2


def test_what_is_newer_is_believed(side: Side) -> None:
    side.say(5, acked=1)
    assert side.party.fetch_document() == ControlDocument(5, side.alive().life, 1, {"acked": 1})
    side.say(6, acked=2)
    down = side.party.fetch_document()
    assert down is not None
    assert down.body == {"acked": 2}


def test_what_is_older_is_not(side: Side) -> None:
    side.say(5, acked=2)
    side.party.fetch_document()
    side.say(4, acked=1)
    down = side.party.fetch_document()
    assert down is not None
    assert down.body == {"acked": 2}


def test_what_was_said_to_an_earlier_life_is_not(side: Side) -> None:
    side.say(5, life="0" * 24, stop=True)
    assert side.party.fetch_document() is None


def test_what_others_wrote_is_not(side: Side) -> None:
    side.say(5, key=host_key(b"guessed", "mch-1"), stop=True)
    assert side.party.fetch_document() is None
    side.mail.put(control_document_name(ME), b"garbage", 7)
    assert side.party.fetch_document() is None


def test_only_an_echo_is_contact(side: Side) -> None:
    side.say(5, count=1)
    side.party.fetch_document()
    side.now += QUIET_SECONDS + 1
    assert not side.party.in_touch
    side.say(6, count=1)
    side.party.fetch_document()
    assert not side.party.in_touch, "the control plane wrote, and has not seen the newest sign of life"
    side.party.send_heartbeat()
    side.say(7, count=2)
    side.party.fetch_document()
    assert side.party.in_touch


def test_no_echo_is_no_contact(side: Side) -> None:
    channel = StoreChannel(side.party, "att-1", 0, "secret")
    assert channel.desired(DesiredAttempt(), 0.01) is None, "there has been no time for an echo"
    side.now += QUIET_SECONDS + 1
    with pytest.raises(Unreachable):
        channel.desired(DesiredAttempt(), 0.01)


def test_a_wish_is_heard(side: Side) -> None:
    channel = StoreChannel(side.party, "att-1", 0, "secret")
    side.say(5, stop=True, checkpoint=3, settled=False, ends_in=12.5)
    wish = channel.desired(DesiredAttempt(), 5.0)
    assert wish == DesiredAttempt(True, 3)
    assert wish is not None
    assert wish.ends_in is not None
    assert wish.ends_in.seconds == 12.5


def test_urls_are_asked_for_and_learned(tmp_path: Path) -> None:
    urls = SignedUrls({})
    side = Side(tmp_path, urls)
    side.party.send_heartbeat()
    urls.want("PUT", "blobs/x")
    side.party.send_heartbeat()
    assert side.alive().wants == (), "not so soon after the last"
    side.now += 1.0
    side.party.send_heartbeat()
    assert side.alive().wants == ("PUT blobs/x",)
    side.say(5, count=2, urls={"PUT blobs/x": "https://x"})
    side.party.fetch_document()
    assert urls.wait_for("PUT", "blobs/x") == "https://x"
    assert urls.wanted() == ()


def test_a_url_that_never_comes_is_not_waited_for_for_ever() -> None:
    with pytest.raises(Unreachable, match="no URL"):
        SignedUrls({}).wait_for("PUT", "blobs/x", 0.01)


def test_a_url_that_has_run_out_is_asked_for_again() -> None:
    urls = SignedUrls({"PUT x": "https://old"})
    urls.refuse("PUT", "x")
    assert urls.wanted() == ("PUT x",)
    urls.learn({"PUT x": "https://new"})
    assert urls.wait_for("PUT", "x") == "https://new"


def test_names_for_the_next_batches_are_asked_for_ahead(tmp_path: Path) -> None:
    urls = SignedUrls({})
    side = Side(tmp_path, urls)
    first = side.party.next_segment()
    assert f"PUT {first}" in urls.wanted()
    assert len(urls.wanted()) > 10
    assert side.party.next_segment() != first


def channel(side: Side) -> StoreChannel:
    return StoreChannel(side.party, "att-1", 0, "secret", sleep=lambda seconds: None)


def test_secrets_are_asked_for_and_then_no_more(side: Side) -> None:
    side.say(5)
    asked: list[tuple[str, ...]] = []

    def answer(seconds: float) -> None:
        asked.append(side.alive().wants)
        side.now += 1.5
        if SECRETS in side.alive().wants:
            side.say(6, count=2, secrets={"values": {"TOKEN": "value"}})

    talk = StoreChannel(side.party, "att-1", 0, "secret", sleep=answer)
    assert talk.secrets() == {"TOKEN": "value"}
    assert (SECRETS,) in asked
    side.now += 1.5
    side.party.send_heartbeat()
    assert side.alive().wants == ()


def test_secrets_that_are_refused(side: Side) -> None:
    side.say(5, secrets={"refused": "there is none"})
    with pytest.raises(Refused, match="there is none"):
        channel(side).secrets()
