"""Test the socket of a session: opening, refusals, closing, and invalid data from the server."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from crucible.agent.link.connection import Refused, ServerAddress, Unreachable
from crucible.agent.sessions.session_socket import SessionSocket, SocketLost, open_session_socket

pytestmark = pytest.mark.enable_socket


def answering(answer: bytes) -> str:
    """Start a server that sends this to its first client, and yield its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_refusal_has_its_status() -> None:
    with pytest.raises(Refused) as refused:
        open_session_socket(ServerAddress(answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")), "/x", "s")
    assert refused.value.status == 404


@pytest.mark.parametrize("answer", [b"", b"hello\r\n\r\n", b"HTTP/1.1 101 OK\r\n\r\n", b"x" * 100_000])
def test_what_is_no_websocket_is_not_reached(answer: bytes) -> None:
    with pytest.raises(Unreachable):
        open_session_socket(ServerAddress(answering(answer)), "/x", "s")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[", "http://127.0.0.1:99999", "nonsense"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(Unreachable):
        open_session_socket(ServerAddress(url), "/x", "s")


def test_the_address_is_read_anew_each_time(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no server"):
        open_session_socket(ServerAddress(file=tmp_path / "url"), "/x", "s")


def test_a_ping_is_answered_and_a_close_is_the_end() -> None:
    here, there = socket.socketpair()
    with there:
        line = SessionSocket(here)
        there.sendall(b"\x89\x02hi\x82\x03abc")
        assert line.receive() == [b"abc"]
        assert there.recv(100)[:2] == b"\x8a\x82"
        there.sendall(b"\x88\x02\x03\xe8")
        with pytest.raises(SocketLost, match="closed"):
            line.receive()
        here.close()


def test_what_came_with_the_answer_is_not_lost() -> None:
    here, there = socket.socketpair()
    with here, there:
        line = SessionSocket(here, b"\x82\x01a")
        assert line.has_more
        assert line.receive() == [b"a"]
        assert not line.has_more


@pytest.mark.parametrize("raw", [b"\x82\xffmasked", b"\x82\x7f" + b"\x00\x00\x00\x01\x00\x00\x00\x00", b""])
def test_hostile_bytes_are_the_end_of_it(raw: bytes) -> None:
    here, there = socket.socketpair()
    with here:
        there.sendall(raw)
        there.close()
        with pytest.raises(SocketLost):
            SessionSocket(here).receive()


def test_frames_that_come_at_once_are_taken_one_by_one() -> None:
    here, there = socket.socketpair()
    with here, there:
        line = SessionSocket(here)
        there.sendall(b"\x82\x01a\x82\x01b\x82\x01c")
        assert line.wait_for_frame(5) == b"a"
        assert line.has_more
        assert line.receive() == [b"b", b"c"]
        assert not line.has_more


def test_a_first_frame_that_never_comes() -> None:
    here, there = socket.socketpair()
    with here, there, pytest.raises(SocketLost):
        SessionSocket(here).wait_for_frame(0.05)
