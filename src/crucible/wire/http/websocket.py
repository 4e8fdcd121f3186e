"""The client side of WebSockets (RFC 6455) without I/O, for agents, which have only the standard library."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_CONTINUES = 0x0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_HEAD = 16 * 1024
_CONTROL_BYTES = 125


class BadWebSocket(ValueError):
    """The other side violates the protocol."""


@dataclass(frozen=True)
class Handshake:
    """The opening handshake: send `request`, then pass the head of the response to `check`."""

    request: bytes
    expected: str

    @classmethod
    def create(cls, host: str, path: str, headers: Mapping[str, str]) -> Handshake:
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        request = "\r\n".join([*lines, "", ""]).encode("ascii")
        digest = hashlib.sha1(key + _GUID).digest()  # noqa: S324  required by the protocol; no security depends on it
        return cls(request, base64.b64encode(digest).decode())

    def check(self, head: bytes) -> int:
        """Return the status of the response: 101 for an open socket. Raises BadWebSocket."""
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise BadWebSocket("not an HTTP response")
        status = int(parts[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if status == 101 and headers.get("sec-websocket-accept") != self.expected:
            raise BadWebSocket("the response does not belong to the request")
        return status


def encode_message(opcode: int, payload: bytes, mask: Callable[[int], bytes] = os.urandom) -> bytes:
    """Return a complete message, masked as clients must."""
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
    key = mask(4)
    return head + key + _apply_mask(payload, key)


def _apply_mask(payload: bytes, key: bytes) -> bytes:
    """Apply the mask by XOR of two large integers: a loop over bytes would be many times slower."""
    size = len(payload)
    if not size:
        return b""
    keys = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(keys, "big")).to_bytes(size, "big")


class Decoder:
    """Decodes a server's messages: `feed` it bytes as they arrive. Raises BadWebSocket."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._parts: list[bytes] = []
        self._opcode: Optional[int] = None

    def feed(self, received: bytes) -> list[tuple[int, bytes]]:
        """Return the messages that are complete now, as opcode and payload."""
        self._rest += received
        found: list[tuple[int, bytes]] = []
        while True:
            frame = self._frame()
            if frame is None:
                return found
            message = self._message(*frame)
            if message is not None:
                found.append(message)

    def _frame(self) -> Optional[tuple[bool, int, bytes]]:
        if len(self._rest) < 2:
            return None
        first, second = self._rest[0], self._rest[1]
        if first & 0x70 or second & 0x80:
            raise BadWebSocket("a frame with a mask, or of an extension that was not agreed on")
        size, at = second & 0x7F, 2
        if size >= 126:
            form = ">H" if size == 126 else ">Q"
            at += struct.calcsize(form)
            if len(self._rest) < at:
                return None
            size = struct.unpack(form, self._rest[2:at])[0]
        if size > self._limit or (first & 0x8 and size > _CONTROL_BYTES):
            raise BadWebSocket(f"a frame of {size} bytes")
        if len(self._rest) < at + size:
            return None
        payload, self._rest = self._rest[at : at + size], self._rest[at + size :]
        return bool(first & 0x80), first & 0x0F, payload

    def _message(self, last: bool, opcode: int, payload: bytes) -> Optional[tuple[int, bytes]]:
        if opcode & 0x8:
            if not last or opcode not in (CLOSE, PING, PONG):
                raise BadWebSocket(f"a control frame of kind {opcode}")
            return opcode, payload
        if (opcode == _CONTINUES) != (self._opcode is not None) or opcode > BINARY:
            raise BadWebSocket(f"a frame of kind {opcode} out of order")
        self._opcode = opcode or self._opcode
        self._parts.append(payload)
        if sum(map(len, self._parts)) > self._limit:
            raise BadWebSocket("a message that is too long")
        if not last:
            return None
        whole = (self._opcode or BINARY, b"".join(self._parts))
        self._opcode, self._parts = None, []
        return whole
