from __future__ import annotations

import hashlib
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.agents_server import BAD_DAY, AgentsServer
from tests.control.harness import job_spec

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import (
    ClaimedByAnother,
    DesiredAttempt,
    Gap,
    HttpChannel,
    HttpMachineChannel,
    LogSegment,
    NoRoom,
    log_message_data,
    upload_seconds,
)
from crucible.agent.link.connection import Gone, Refused, ServerAddress, ServerConnection, ServerReply, Unreachable
from crucible.wire.documents.messages import Message, MessageKind
from crucible.wire.http.client import Request

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def control(control: AgentsServer) -> AgentsServer:
    control.run(job_spec(), "a")
    return control


@pytest.fixture
def channel(control: AgentsServer) -> Iterator[HttpChannel]:
    channel = HttpChannel(ServerAddress(file=control.url_file), "a", 0, control.secret("a"))
    yield channel
    channel.close()


def message(n: int) -> Message:
    return Message(n, MessageKind.NOTE, 0.0, {"text": str(n)})


def test_messages_are_acknowledged(channel: HttpChannel, control: AgentsServer) -> None:
    assert channel.send([message(1), message(2)]) == 2
    assert channel.send([message(2), message(3)]) == 3
    assert [m.n for m in control.attempts["a"].messages] == [1, 2, 3]


def test_each_request_is_made_once_over_one_connection(channel: HttpChannel, control: AgentsServer) -> None:
    for n in range(1, 6):
        channel.send([message(n)])
        channel.put_tail(0, b"x")
    assert len(control.requests) == 10
    assert len(control.connections) == 1


def test_a_gap_says_where_to_begin(channel: HttpChannel) -> None:
    channel.send([message(1)])
    with pytest.raises(Gap) as error:
        channel.send([message(5)])
    assert error.value.acked == 1


def test_failures_have_classes(channel: HttpChannel, control: AgentsServer) -> None:
    expected = {500: Unreachable, 503: Unreachable, 429: Unreachable, 401: Refused, 404: Refused, 410: Gone}
    for status, kind in expected.items():
        control.faults.refuse("*/messages", status)
        with pytest.raises(kind):
            channel.send([message(1)])
    assert channel.send([message(1)]) == 1


def test_a_wrong_secret_is_refused(control: AgentsServer) -> None:
    with pytest.raises(Refused) as error:
        HttpChannel(ServerAddress(file=control.url_file), "a", 0, "wrong").send([message(1)])
    assert error.value.status == 401


def test_a_server_that_moved_is_found(channel: HttpChannel, control: AgentsServer) -> None:
    channel.send([message(1)])
    control.down()
    with pytest.raises(Unreachable):
        channel.send([message(2)])
    control.start()
    assert channel.send([message(2)]) == 2


def test_no_address_and_nonsense_are_unreachable(tmp_path: Path) -> None:
    nonsense = [ServerAddress(url) for url in ("http://127.0.0.1:port/", "http://[", "http://", "\x00", "x" * 999)]
    for address in (ServerAddress(), ServerAddress(file=tmp_path / "absent"), *nonsense):
        with pytest.raises(Unreachable):
            ServerConnection(address).ask(Request("GET", "/"))


def test_silence_has_a_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = ServerAddress(f"http://127.0.0.1:{listener.getsockname()[1]}")
    with pytest.raises(Unreachable):
        ServerConnection(address).ask(Request("GET", "/", seconds=0.1))
    listener.close()


def test_rubbish_is_unreachable() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(Unreachable):
        ServerConnection(ServerAddress(f"http://127.0.0.1:{listener.getsockname()[1]}")).ask(Request("GET", "/"))
    listener.close()


def test_what_is_wanted(channel: HttpChannel, control: AgentsServer) -> None:
    assert channel.desired(DesiredAttempt(), 0.05) is None
    control.faults.change("*/attempts/*/desired", lambda wishes: {**wishes, "something": "new"})
    control.claim("one")  # an attempt that no host can have heard of ends at once
    control.stop("a")
    assert channel.desired(DesiredAttempt(), 5.0) == DesiredAttempt(stop=True)
    control.forget("a")
    with pytest.raises(Gone):
        channel.desired(DesiredAttempt(stop=True), 5.0)


def test_logs_and_artifacts(channel: HttpChannel, control: AgentsServer, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"one\ntwo\n")
    segment = LogSegment(0, 0, 8, 2, path)
    sha256 = channel.put_log(segment)
    channel.send([Message(1, MessageKind.LOG, 0.0, dict(log_message_data(segment, sha256)))])
    assert control.attempts["a"].log() == b"one\ntwo\n"
    data = b"x" * 1_000_000
    told = {"path": "sub/ä b.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    channel.put_artifact("sub/ä b.bin", io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest())
    channel.send([Message(2, MessageKind.ARTIFACT, 0.0, told)])
    assert control.attempts["a"].artifacts == {"sub/ä b.bin": data}


def test_a_full_store_is_told_apart(channel: HttpChannel, control: AgentsServer) -> None:
    control.faults.refuse("*/artifacts/*", 507, body=BAD_DAY)
    with pytest.raises(NoRoom, match="507 a bad day"):
        channel.put_artifact("x", io.BytesIO(b"x"), 1, hashlib.sha256(b"x").hexdigest())
    control.faults.refuse("*/artifacts/*", 503)
    with pytest.raises(Unreachable) as error:
        channel.put_artifact("x", io.BytesIO(b"x"), 1, hashlib.sha256(b"x").hexdigest())
    assert not isinstance(error.value, NoRoom)


def test_a_large_upload_may_take_its_time() -> None:
    assert upload_seconds(0) == 60
    assert upload_seconds(10**12) > 24 * 3600


def test_a_bundle_from_the_middle(control: AgentsServer) -> None:
    sha256 = control.add_bundle(b"0123456789")
    control.run(job_spec(bundle=sha256), "b")
    channel = HttpChannel(ServerAddress(file=control.url_file), "b", 0, control.secret("b"))
    assert b"".join(channel.bundle(sha256, 0)) == b"0123456789"
    assert b"".join(channel.bundle(sha256, 4)) == b"456789"
    with pytest.raises(Refused):
        list(channel.bundle("e" * 64, 0))
    assert channel.send([message(1)]) == 1
    channel.close()


def test_claims(control: AgentsServer) -> None:
    machine = HttpMachineChannel(ServerAddress(file=control.url_file), control.machine, None)
    secret = machine.claim(control.nonce, "one")
    assert machine.claim(control.nonce, "one") == secret
    with pytest.raises(ClaimedByAnother):
        machine.claim(control.nonce, "two")
    with pytest.raises(Refused):
        machine.claim("wrong", "one")
    control.end_machine()
    with pytest.raises(Gone):
        machine.claim(control.nonce, "one")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"v":1,"assignments":["x"]}', b'{"v":9}', b"\xff\xfe"])
def test_a_document_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        HttpMachineChannel(ServerAddress(), "m1", "s").read_desired(ServerReply(200, raw))


def test_backoff_grows_to_its_most_with_jitter() -> None:
    backoff = Backoff(chance=lambda: 1.0)
    waits = [backoff.next() for _ in range(8)]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == 5.0
    backoff.reset()
    assert backoff.next() == 0.1
    assert Backoff(chance=lambda: 0.0).next() == 0.05
