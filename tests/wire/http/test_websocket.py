"""The agents' WebSockets, held against a well-known implementation of the other side."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from crucible.wire.http import websocket as ws

LIMIT = 100_000


def server_for(handshake: ws.Handshake) -> tuple[ServerProtocol, bytes]:
    """A server that has accepted the handshake, and its answer."""
    server = ServerProtocol(max_size=LIMIT)
    server.receive_data(handshake.request)
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    return server, b"".join(server.data_to_send())


def opened() -> ServerProtocol:
    return server_for(ws.Handshake.create("here:1", "/path", {}))[0]


def test_the_handshake_is_accepted() -> None:
    handshake = ws.Handshake.create("here:1", "/agent/x?y=1", {"Authorization": "Bearer abc"})
    _, answer = server_for(handshake)
    assert handshake.check(answer.partition(b"\r\n\r\n")[0]) == 101


def test_an_answer_to_another_request_is_refused() -> None:
    _, answer = server_for(ws.Handshake.create("here:1", "/", {}))
    with pytest.raises(ws.BadWebSocket, match="belong"):
        ws.Handshake.create("here:1", "/", {}).check(answer.partition(b"\r\n\r\n")[0])


@pytest.mark.parametrize("head", [b"", b"SSH-2.0-x", b"HTTP/1.1", b"HTTP/1.1 ok"])
def test_what_is_no_answer(head: bytes) -> None:
    with pytest.raises(ws.BadWebSocket):
        ws.Handshake.create("here:1", "/", {}).check(head)


def test_a_refusal_has_its_status() -> None:
    assert ws.Handshake.create("here:1", "/", {}).check(b"HTTP/1.1 404 Not Found\r\nX: y") == 404


@given(st.binary(max_size=70_000) | st.sampled_from([b"x" * n for n in (0, 125, 126, 65535, 65536)]))
def test_what_is_sent_arrives(payload: bytes) -> None:
    server = opened()
    server.receive_data(ws.encode_message(ws.BINARY, payload))
    (frame,) = server.events_received()
    assert isinstance(frame, Frame)
    assert (frame.opcode, bytes(frame.data)) == (Opcode.BINARY, payload)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(1, 50))
def test_what_comes_is_read_however_it_is_cut(payloads: list[bytes], step: int) -> None:
    server = opened()
    for payload in payloads:
        server.send_binary(payload)
    server.send_ping(b"?")
    raw = b"".join(server.data_to_send())
    decoder = ws.Decoder(LIMIT)
    found = [message for at in range(0, len(raw), step) for message in decoder.feed(raw[at : at + step])]
    assert found == [*((ws.BINARY, payload) for payload in payloads), (ws.PING, b"?")]


def test_a_message_in_pieces_is_put_together_round_a_ping() -> None:
    server = opened()
    server.send_binary(b"ab", fin=False)
    server.send_ping(b"")
    server.send_continuation(b"cd", fin=True)
    found = ws.Decoder(LIMIT).feed(b"".join(server.data_to_send()))
    assert found == [(ws.PING, b""), (ws.BINARY, b"abcd")]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x82\x81aaaab",  # masked
        b"\xc2\x01a",  # of an extension
        b"\x80\x01a",  # goes on with nothing
        b"\x02\x01a\x82\x01b",  # begins anew before the end
        b"\x83\x01a",  # of an unknown kind
        b"\x8b\x00",
        b"\x09\x00",  # half a ping
        b"\x89\x7e\x00\x80",  # a long ping
        b"\x82\x7f" + struct.pack(">Q", 2**40),
        b"\x02\x7e\xff\xff" + b"a" * 65535 + b"\x80\x7e\xff\xff" + b"a" * 65535,
    ],
)
def test_what_no_server_may_send(raw: bytes) -> None:
    with pytest.raises(ws.BadWebSocket):
        ws.Decoder(LIMIT).feed(raw)


@given(st.binary(max_size=300))
def test_hostile_bytes_are_read_or_refused(raw: bytes) -> None:
    decoder = ws.Decoder(LIMIT)
    try:
        decoder.feed(raw)
    except ws.BadWebSocket:
        return
