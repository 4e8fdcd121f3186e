"""Bytes on the line itself: what is no HTTP, or no WebSocket, ends that connection and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.processors import format_exc_info
from structlog.testing import capture_logs
from tests.authorisation.populated_app import PopulatedApp, populate
from tests.control.harness import give_back, make_harness

from crucible.server.http.listen import UvicornListener, bind, port_of

SECONDS = 20.0
HOST = b"Host: 127.0.0.1\r\n"
MiB = 1024**2

pytestmark = pytest.mark.enable_socket


class Line:
    """A server that listens, and bytes to it."""

    def __init__(self, populated_app: PopulatedApp, port: int) -> None:
        self.populated_app = populated_app
        self.port = port

    @property
    def token(self) -> bytes:
        return f"Authorization: Bearer {self.populated_app.tokens['owner']}\r\n".encode()

    async def send(self, *parts: bytes) -> bytes:
        """All that comes back until the server closes the connection, or says no more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), SECONDS)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def is_well(self) -> bool:
        return b" 200 " in await self.send(b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    harness = await make_harness(tmp_path)
    populated_app = await populate(harness)
    with bind("127.0.0.1", None) as bound:
        listener = UvicornListener(populated_app.api, bound)
        serving = asyncio.create_task(listener.run_until_stopped())
        await listener.listening.wait()
        with capture_logs(processors=[format_exc_info]) as told:
            yield Line(populated_app, port_of(bound))
        listener.should_exit = True
        await serving
    await give_back(harness.ports.db)
    assert [entry for entry in told if entry["log_level"] == "error"] == []


REQUESTS: dict[str, tuple[bytes, ...]] = {
    "noise": (bytes(range(256)),),
    "a line that never ends": (b"GET /" + b"x" * 200_000,),
    "a flood of headers": (
        b"GET /healthz HTTP/1.1\r\n" + HOST,
        *(b"X-%d: %b\r\n" % (n, b"y" * 500) for n in range(2000)),
    ),
    "one header of a megabyte": (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: " + b"y" * MiB + b"\r\n\r\n",),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n",),
    "two hosts": (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: evil\r\n\r\n",),
    "two lengths": (b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",),
    "a length and chunks": (
        b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "a chunk that is none": (b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",),
    "a chunk of any size": (
        b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
    ),
    "a length of many digits": (
        b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ),
    "a header with a NUL": (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",),
    "a header split in two": (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\rX\r\n\r\n",),
    "a path of bytes": (b"GET /\xff\xfe\x00 HTTP/1.1\r\n" + HOST + b"\r\n",),
    "another protocol": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",),
    "a method nobody knows": (b"BREW /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_what_is_no_request_ends_its_connection_alone(line: Line, what: str) -> None:
    answer = await line.send(*REQUESTS[what])
    assert answer == b"" or answer.split()[1].startswith(b"4"), answer[:200]
    assert await line.is_well()


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [(b"POST", b"/api/v1/jobs", 8 * MiB), (b"POST", b"/login", 4096), (b"POST", b"/api/v1/jobs/cancel", 8 * MiB)],
)
async def test_a_body_in_chunks_is_cut_off_at_the_limit(line: Line, method: bytes, path: bytes, size: int) -> None:
    """It says no length, so only what arrives can be counted."""
    head = method + b" " + path + b" HTTP/1.1\r\n" + HOST + line.token
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (64 * 1024, b" " * 64 * 1024)
    answer = await line.send(head, *[chunk] * (size // (64 * 1024) + 2), b"0\r\n\r\n")
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b'"code":"too_large"' in answer
    assert await line.is_well()


def framed(opcode: int, data: bytes, *, final: bool = True, masked: bool = True, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    mask = 0x80 if masked else 0
    head = bytes([opcode | (0x80 if final else 0)])
    if size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += bytes([mask | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", size)
    return head + (b"\x00" * 4 if masked else b"") + data


FRAMES: dict[str, bytes] = {
    "text": framed(1, b"hello"),
    "a document": framed(1, b'{"stream": "job"}'),
    "bytes": framed(2, bytes(range(256))),
    "text that is no UTF-8": framed(1, b"\xff\xfe"),
    "an opcode that is none": framed(7, b"x"),
    "no mask": framed(1, b"x", masked=False),
    "too long": framed(1, b"x" * 100_000),
    "a length that lies": framed(1, b"x", length=2**62),
    "a part of nothing": framed(0, b"x"),
    "parts without end": framed(1, b"x", final=False) + framed(0, b"x", final=False) * 1000,
    "a long ping": framed(9, b"x" * 200),
    "a close that is none": framed(8, b"\x00"),
    "reserved bits": bytes([0xF1, 0x80]) + b"\x00" * 4,
    "noise": bytes(range(255, -1, -1)) * 10,
}


@pytest.mark.parametrize("path", ["/api/v1/stream", "/api/v1/jobs/{id}/stream", "/api/v1/training/{id}/stream"])
async def test_frames_that_are_none_end_their_socket_alone(line: Line, path: str) -> None:
    url = path.replace("{id}", line.populated_app.job).encode()
    key = base64.b64encode(b"k" * 16)
    head = b"GET " + url + b" HTTP/1.1\r\n" + HOST + line.token + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    head += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
    for what, frame in FRAMES.items():
        answer = await line.send(head, frame)
        assert b" 101 " in answer.split(b"\r\n")[0], what
        assert await line.is_well(), what


async def test_a_handshake_that_is_none_opens_nothing(line: Line) -> None:
    for extra in (b"", b"Sec-WebSocket-Version: 99\r\n", b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"):
        head = b"GET /api/v1/stream HTTP/1.1\r\n" + HOST + line.token
        answer = await line.send(head + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + extra + b"\r\n")
        assert answer.split()[1].startswith(b"4"), answer[:200]
        assert await line.is_well()
