"""Connections that say nothing, or say who they are with nothing, keep no room from those that are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from tests.certificates import make_certificate
from tests.server.loopback import Loopback

from crucible.server.http import connections
from crucible.server.http.connections import ConnectionLimiter, accept_connection
from crucible.server.http.listen import TlsFiles

HEAD = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass(eq=False)
class Connection:
    address: str
    has_head: bool = False
    aborted: bool = field(default=False, init=False)

    def abort(self) -> None:
        self.aborted = True


def full(pool: ConnectionLimiter, *connections: Connection) -> list[bool]:
    """Add the connections; return which of them are closed for want of room."""
    for connection in connections:
        pool.add(connection)
    pool.trim()
    return [connection.aborted for connection in connections]


async def test_of_too_many_newcomers_the_oldest_of_the_address_that_has_the_most_are_closed() -> None:
    lonely, *crowd = (Connection(address) for address in ("10.0.0.1", *["10.0.0.2"] * 4))
    assert full(ConnectionLimiter(newcomers=3), lonely, *crowd) == [False, True, True, False, False]


async def test_a_newcomer_that_has_sent_a_full_head_is_closed_last() -> None:
    heads = [Connection("10.0.0.1", has_head) for has_head in (True, False, True, False)]
    assert full(ConnectionLimiter(newcomers=2), *heads) == [False, True, False, True]


async def test_newcomers_have_a_moment_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes back is called by all its agents before it has read the first."""
    monkeypatch.setattr(connections, "TRIM_SECONDS", 0.01)
    pool, agents = ConnectionLimiter(newcomers=1), [Connection("10.0.0.1") for _ in range(9)]
    for agent in agents:
        pool.add(agent)
    for agent in agents[2:]:
        pool.remove(agent)
    assert not any(agent.aborted for agent in agents)
    await asyncio.sleep(0.05)
    assert [agent.aborted for agent in agents] == [True] + [False] * 8


async def test_one_idle_connection_too_many_costs_the_one_that_is_idle_longest() -> None:
    pool = ConnectionLimiter(idle=1)
    first, busy, last = (Connection("10.0.0.1") for _ in range(3))
    for connection in (busy, first, last):
        pool.set_idle(connection)
        if connection is busy:
            pool.add(busy)
    assert (first.aborted, busy.aborted, last.aborted) == (True, False, False)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/known":
        accept_connection(scope)
    if scope["path"] == "/body":
        await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    loopback = Loopback(app)
    await loopback.start()
    try:
        yield int(loopback.url.rpartition(":")[2])
    finally:
        await loopback.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: bytes) -> bytes:
    writer.write(HEAD % path)
    return await asyncio.wait_for(reader.readuntil(b"ok"), 5)


@pytest.mark.enable_socket
async def test_however_many_connections_say_nothing_the_next_request_is_answered(port: int) -> None:
    known = await asyncio.open_connection("127.0.0.1", port)
    await ask(*known, b"known")
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections.NEWCOMERS + 100)]
    for _, writer in silent[-50:]:
        writer.write(b"GET / HT")
    assert [await asyncio.wait_for(reader.read(), 5) for reader, _ in silent[:50]] == [b""] * 50, (
        "the oldest are closed"
    )
    fresh = await asyncio.open_connection("127.0.0.1", port)
    assert (await ask(*fresh, b"unknown")).startswith(b"HTTP/1.1 200")
    assert (await ask(*known, b"known")).startswith(b"HTTP/1.1 200")
    for _, writer in (known, fresh, *silent):
        writer.close()


@pytest.mark.enable_socket
async def test_over_tls_a_connection_is_a_newcomer_before_its_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TRIM_SECONDS", 0.05)
    certificate, key = make_certificate(tmp_path)
    loopback = Loopback(app, TlsFiles(certificate, key))
    await loopback.start()
    port = int(loopback.url.rpartition(":")[2])
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections.NEWCOMERS + 20)]
    assert await asyncio.wait_for(silent[0][0].read(), 5) == b""
    trusted = ssl.create_default_context(cafile=str(certificate))
    honest = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
    assert (await ask(*honest, b"known")).startswith(b"HTTP/1.1 200")
    for _, writer in (honest, *silent):
        writer.close()
    await loopback.close()


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """A listener with TLS: its port, and a client's trust in it."""
    certificate, key = make_certificate(tmp_path)
    loopback = Loopback(app, TlsFiles(certificate, key))
    await loopback.start()
    yield int(loopback.url.rpartition(":")[2]), ssl.create_default_context(cafile=str(certificate))
    await loopback.close()


@pytest.mark.enable_socket
@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n"], ids=["nothing", "a part", "no TLS"])
async def test_a_tls_handshake_has_to_be_done_in_time(
    encrypted: tuple[int, ssl.SSLContext], begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", encrypted[0])
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("before", "begun"),
    [(False, b""), (False, b"GET / HTTP/1.1\r\nHost"), (True, b"GET / HTTP/1.1\r\nHost")],
    ids=["nothing", "half a head", "half a second head"],
)
async def test_over_tls_a_head_has_to_come_in_time(
    encrypted: tuple[int, ssl.SSLContext], before: bool, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, trusted = encrypted
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)  # the handshake has to be done in it too
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
    if before:
        await ask(reader, writer, b"known")
    writer.write(begun)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


@pytest.mark.enable_socket
async def test_over_tls_silent_connections_keep_no_one_out(encrypted: tuple[int, ssl.SSLContext]) -> None:
    """After their handshakes they are newcomers as before."""
    port, trusted = encrypted
    opened = [
        asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
        for _ in range(connections.NEWCOMERS + 20)
    ]
    silent = await asyncio.gather(*opened)
    closed = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
    done, _ = await asyncio.wait(closed, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert done
    honest = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
    assert (await ask(*honest, b"known")).startswith(b"HTTP/1.1 200")
    for _, writer in (honest, *silent):
        writer.transport.abort()
    await asyncio.wait(closed)


@pytest.mark.enable_socket
async def test_an_accepted_connection_is_a_newcomer_again_with_its_next_request(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one secret opens any number of requests without credentials whose bodies never come."""
    monkeypatch.setattr(connections, "TRIM_SECONDS", 0.05)
    held = []
    for _ in range(connections.NEWCOMERS + 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await ask(reader, writer, b"known")
        writer.write(b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        held.append((reader, writer))
    assert await asyncio.wait_for(held[0][0].read(), 5) == b""
    for _, writer in held:
        writer.close()


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("before", "begun"),
    [(False, b""), (False, b"GET / HTTP/1.1\r\nHost"), (True, b"GET / HTTP/1.1\r\nHost")],
    ids=["nothing", "half a head", "half a second head"],
)
async def test_a_head_has_to_come_in_time(
    port: int, before: bool, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if before:
        await ask(reader, writer, b"known")
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
