"""One POST, to a real receiver on this computer: no further than the guard says, and not for longer than it may."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.certificates import make_certificate
from tests.webhook_receiver import Answer, Receiver

from crucible.core.errors import RefusedByPolicy
from crucible.core.hooks import LONGEST_TEXT
from crucible.integrations.addresses import Exceptions, Guard
from crucible.integrations.webhook import MOST_BYTES, Webhooks

pytestmark = pytest.mark.enable_socket
BODY = b'{"type": "ping"}'


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def webhooks(seconds: float = 10.0, look_up=here, allowed: tuple[str, ...] = ("127.0.0.1",), **more) -> Webhooks:  # type: ignore[no-untyped-def]
    return Webhooks(Guard(look_up, Exceptions.parse(allowed)), agent="crucible/test", seconds=seconds, **more)


@contextmanager
def swallowing(host: str, port: int) -> Iterator[None]:
    """Connections to there are neither taken nor refused: nobody accepts, and its queue is full."""
    with socket.socket(socket.AF_INET6) as listener, ExitStack() as queue:
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(3):
            waiting = queue.enter_context(socket.socket(socket.AF_INET6))
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


async def test_what_is_sent_arrives_in_the_name_of_the_host(receiver: Receiver) -> None:
    reply = await webhooks().post(receiver.url("hooks.example", "/a/ü?b=c%20d"), BODY, {"webhook-id": "msg_1"})
    assert (reply.status, reply.text, reply.accepted) == (200, "thanks", True)
    (got,) = receiver.received
    assert (got.path, got.body, got.id) == ("/a/%C3%BC?b=c%20d", BODY, "msg_1")
    sent = {name.lower(): value for name, value in got.headers.items()}
    assert (sent["host"], sent["user-agent"]) == (f"hooks.example:{receiver.port}", "crucible/test")
    assert sent["content-type"] == "application/json"
    assert not {"authorization", "cookie"} & set(sent)


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with Receiver() as metadata:
        for status in (301, 302, 303, 307, 308):
            receiver.answers = [Answer(status, {"location": metadata.url(path="/latest/meta-data/")})]
            reply = await webhooks().post(receiver.url(), BODY, {})
            assert (reply.status, reply.accepted) == (status, False)
            assert "redirect" in reply.text
        assert metadata.received == []


async def test_what_may_not_be_called_is_never_connected_to(receiver: Receiver) -> None:
    strict = webhooks(allowed=())
    reply = await strict.post(receiver.url("hooks.example"), BODY, {})
    assert reply.status is None
    assert "webhook_hosts" in reply.text
    with pytest.raises(RefusedByPolicy):
        await strict.check(receiver.url("hooks.example"))
    assert receiver.received == []


async def test_an_address_that_is_silent_leaves_time_for_the_next(receiver: Receiver) -> None:
    """As where a host has an IPv6 address and the way there swallows everything."""

    async def two(host: str, port: int) -> list[str]:
        return ["::1", "127.0.0.1"]

    with swallowing("::1", receiver.port):
        reply = await webhooks(1.5, two, ("127.0.0.1", "::1")).post(receiver.url("hooks.example"), BODY, {})
    assert reply.accepted, reply.text


async def test_a_name_that_changes_its_mind_is_asked_once(receiver: Receiver) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    assert (await webhooks(look_up=rebinding).post(receiver.url("rebind.example"), BODY, {})).accepted
    assert asked == ["rebind.example"]


async def test_the_environments_proxies_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url(path=""))
        assert (await webhooks().post(receiver.url(), BODY, {})).accepted
        assert proxy.received == []


async def test_a_receiver_that_says_nothing_has_a_deadline(receiver: Receiver) -> None:
    receiver.answers = [Answer(silent=True)]
    reply = await webhooks(seconds=0.2).post(receiver.url(), BODY, {})
    assert (reply.status, reply.text) == (None, "It did not answer within 0.2 s.")


async def test_one_that_never_ends_its_answer_has_the_same(receiver: Receiver) -> None:
    receiver.answers = [Answer(parts=(b"and ", b"so on"))]
    assert (await webhooks(seconds=0.2).post(receiver.url(), BODY, {})).status is None


async def test_a_name_that_takes_too_long_to_look_up_has_the_same() -> None:
    async def slow(host: str, port: int) -> list[str]:
        import asyncio

        await asyncio.Event().wait()
        return []

    assert "within" in (await webhooks(seconds=0.05, look_up=slow).post("http://a.example", BODY, {})).text


async def test_of_a_long_answer_the_beginning_is_kept(receiver: Receiver) -> None:
    receiver.answers = [Answer(500, parts=(b"no\x1b[31m\n" + b"x" * (MOST_BYTES * 50),))]
    reply = await webhooks().post(receiver.url(), BODY, {})
    assert reply.status == 500
    assert reply.text.startswith("no [31m x")
    assert len(reply.text) == LONGEST_TEXT


@pytest.mark.parametrize(("given", "seconds"), [("120", 120.0), ("soon", None), ("-1", None), ("9" * 12, None)])
async def test_a_receiver_may_say_when_to_come_again(receiver: Receiver, given: str, seconds: float | None) -> None:
    receiver.answers = [Answer(429, {"retry-after": given})]
    assert (await webhooks().post(receiver.url(), BODY, {})).retry_after == seconds


async def test_nobody_there_is_told(receiver: Receiver) -> None:
    reply = await webhooks().post("http://127.0.0.1:9/", BODY, {})
    assert reply.status is None
    assert reply.text.startswith("Connection failed")


async def test_another_address_of_the_host_is_tried_when_one_does_not_answer(receiver: Receiver) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["::1", "127.0.0.1"]

    assert (
        await webhooks(look_up=two, allowed=("127.0.0.1", "::1")).post(receiver.url("a.example"), BODY, {})
    ).accepted


async def test_a_certificate_has_to_be_the_names(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "hooks.example")
    believed = ssl.create_default_context(cafile=str(certificate[0]))
    with Receiver(certificate=certificate) as receiver:
        assert (await webhooks(tls=believed).post(receiver.url("hooks.example"), BODY, {})).accepted
        wrong = await webhooks(tls=believed).post(receiver.url("other.example"), BODY, {})
        stranger = await webhooks().post(receiver.url("hooks.example"), BODY, {})
    assert wrong.status is stranger.status is None
    assert "certificate" in (wrong.text + stranger.text).lower()
    assert len(receiver.received) == 1
