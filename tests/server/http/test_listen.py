"""Sockets: the port that was asked for or none, the last one if it is free."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from structlog.testing import capture_logs
from tests.server.loopback import Loopback

from crucible.server.http.listen import LOG_SECONDS, AcceptErrorLog, PortInUse, bind, port_of, url_of


@pytest.mark.enable_socket
def test_any_free_port() -> None:
    with bind("127.0.0.1", None) as bound:
        assert url_of(bound) == f"http://127.0.0.1:{port_of(bound)}"


@pytest.mark.enable_socket
def test_answers_are_not_held_back() -> None:
    """asyncio turns Nagle's delay off only where the protocol is named; a small answer took 40 ms with it."""
    with bind("127.0.0.1", None) as bound:
        assert bound.proto == socket.IPPROTO_TCP


@pytest.mark.enable_socket
def test_a_port_in_use_is_told_with_the_fix() -> None:
    with bind("127.0.0.1", None) as taken, pytest.raises(PortInUse) as caught:
        bind("127.0.0.1", port_of(taken))
    assert caught.value.code == "port_in_use"
    assert "--port" in caught.value.fix


@pytest.mark.enable_socket
def test_the_port_of_the_last_run_is_preferred() -> None:
    with bind("127.0.0.1", None) as last:
        port = port_of(last)
    with bind("127.0.0.1", None, preferred=port) as bound:
        assert port_of(bound) == port


@pytest.mark.enable_socket
def test_a_preferred_port_that_is_taken_gives_another() -> None:
    with bind("127.0.0.1", None) as taken, bind("127.0.0.1", None, preferred=port_of(taken)) as bound:
        assert port_of(bound) != port_of(taken)


@pytest.mark.enable_socket
def test_addresses_of_version_six() -> None:
    with bind("::1", None) as bound:
        assert url_of(bound) == f"http://[::1]:{port_of(bound)}"


class QuietLoop(asyncio.SelectorEventLoop):
    """Remembers what it would have said itself."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[dict[str, Any]] = []

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.said.append(context)


@pytest.mark.enable_socket
def test_that_no_connection_can_be_taken_is_told_once_in_a_while() -> None:
    now = [0.0]
    handler, loop = AcceptErrorLog(lambda: now[0]), QuietLoop()
    trouble = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    with capture_logs() as told:
        for now[0] in (0.0, 0.1, LOG_SECONDS - 1, LOG_SECONDS):
            handler(loop, trouble)
        handler(loop, {"message": "something else"})
    loop.close()
    assert [line["event"] for line in told] == ["connections cannot be taken"] * 2
    assert "ulimit" in told[0]["fix"]
    assert loop.said == [{"message": "something else"}]


@pytest.mark.parametrize(
    ("limits", "then"),
    [((256, 20_000), (4000, 20_000)), ((256, 1024), (1024, 1024)), ((8000, 20_000), (8000, 20_000))],
    ids=["raised", "as far as it goes", "never lowered"],
)
def test_a_process_lets_itself_open_more_files(limits: tuple[int, int], then: tuple[int, int]) -> None:
    code = (
        "import resource\nfrom crucible.server.http.listen import raise_file_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, {limits!r})\nraise_file_limit(4000)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limits[1]:
        pytest.skip("this system allows fewer")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(then)


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
CLOSE_FRAME = b"\x88\x82" + bytes(4) + (1000).to_bytes(2, "big")


@pytest.mark.enable_socket
async def test_a_socket_that_its_client_is_closing_does_not_disturb_the_shutdown() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.receive()

    loopback = Loopback(app)
    await loopback.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(loopback.url.rpartition(":")[2]))
    writer.write(UPGRADE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    (connection,) = loopback._listener.server_state.connections
    connection.data_received(CLOSE_FRAME)
    await loopback.close()
    writer.close()
