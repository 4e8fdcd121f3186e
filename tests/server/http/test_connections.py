"""Connections that say nothing, or say who they are with nothing, keep no room from those that are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send
from tests.server.loopback import Loopback

from crucible.server.http import connections
from crucible.server.http.connections import ConnectionPool, accept_connection

HEAD = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass(eq=False)
class Connection:
    address: str
    aborted: bool = field(default=False, init=False)

    def abort(self) -> None:
        self.aborted = True


def test_one_newcomer_too_many_costs_the_oldest_of_the_address_that_has_the_most() -> None:
    pool = ConnectionPool(newcomers=4)
    lonely, *crowd = (Connection(address) for address in ("10.0.0.1", *["10.0.0.2"] * 4))
    for connection in (lonely, *crowd):
        pool.add(connection)
    assert [connection.aborted for connection in (lonely, *crowd)] == [False, True, False, False, False]


def test_an_accepted_connection_is_no_newcomer_any_more() -> None:
    pool = ConnectionPool(newcomers=1)
    accepted, other, another = (Connection("10.0.0.1") for _ in range(3))
    pool.add(accepted)
    pool.accept(accepted)
    pool.add(other)
    pool.add(another)
    assert (accepted.aborted, other.aborted, another.aborted) == (False, True, False)


def test_one_idle_connection_too_many_costs_the_one_that_is_idle_longest() -> None:
    pool = ConnectionPool(idle=1)
    first, busy, last = (Connection("10.0.0.1") for _ in range(3))
    for connection in (busy, first, last):
        pool.add(connection)
        pool.accept(connection)
        pool.set_idle(connection)
        if connection is busy:
            pool.set_busy(busy)
    assert (first.aborted, busy.aborted, last.aborted) == (True, False, False)


def test_what_has_gone_or_was_never_accepted_is_not_kept() -> None:
    pool = ConnectionPool(newcomers=1, idle=1)
    gone, unknown = Connection(""), Connection("")
    pool.add(gone)
    pool.accept(gone)
    pool.remove(gone)
    for connection in (gone, unknown):
        pool.accept(connection)
        pool.set_idle(connection)
    pool.add(unknown)
    assert not gone.aborted
    assert not unknown.aborted


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/known":
        accept_connection(scope)
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
    fresh = await asyncio.open_connection("127.0.0.1", port)
    assert (await ask(*fresh, b"unknown")).startswith(b"HTTP/1.1 200")
    assert (await ask(*known, b"known")).startswith(b"HTTP/1.1 200")
    assert [await reader.read() for reader, _ in silent[:50]] == [b""] * 50, "the oldest were closed"
    for _, writer in (known, fresh, *silent):
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
