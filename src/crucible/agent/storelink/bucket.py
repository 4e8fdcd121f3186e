"""A bucket as mail: plain HTTP on signed URLs, without credentials."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlsplit

from crucible.agent.channel import NoRoom, Unreachable, upload_seconds
from crucible.agent.storelink.mail import CHUNK, Content
from crucible.agent.storelink.urls import WAIT_SECONDS, Urls
from crucible.wire.mailbox import CLAIM

SECONDS = 20.0
_AZURE = {"x-ms-blob-type": "BlockBlob"}
"""Azure asks for it, others pass it over."""


class BucketMail:
    """Create-only is not for one who holds a URL: the names that matter are never used twice."""

    pace = 2.0
    is_private = False

    def __init__(self, urls: Urls) -> None:
        self._urls = urls

    def get(self, name: str, limit: int) -> bytes | None:
        with self._answer("GET", name) as response:
            if response.status == 404:
                return None
            self._check("GET", name, response)
            data = _read(response, limit + 1)
            return data if len(data) <= limit else None

    def put(self, name: str, content: Content, size: int) -> None:
        with self._answer("PUT", name, content, size) as response:
            self._check("PUT", name, response)
        if not _is_own(name):
            self._urls.forget("PUT", name)

    def put_new(self, name: str, data: bytes) -> bool:
        self.put(name, data, len(data))
        return True

    def fetch(self, name: str, key: str | None, start: int) -> Iterator[bytes]:
        with self._answer("GET", name, start=start) as response:
            if response.status == 416:
                return
            self._check("GET", name, response)
            left = start if response.status == 200 else 0
            while True:
                part = response.read(CHUNK)
                if not part:
                    break
                yield part[left:]
                left = max(0, left - len(part))
            if response.length:
                raise Unreachable("the download broke off")

    @contextlib.contextmanager
    def _answer(
        self, method: str, name: str, content: Content = b"", size: int = 0, start: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        url = self._urls.find(method, name, 0.0 if _is_own(name) else WAIT_SECONDS)
        connection = _connection(url, upload_seconds(size) if method == "PUT" else SECONDS)
        headers = {**_AZURE, "Content-Length": str(size)} if method == "PUT" else {}
        if start:
            headers["Range"] = f"bytes={start}-"
        body: bytes | BinaryIO | None = content if method == "PUT" else None
        try:
            parts = urlsplit(url)
            connection.request(method, f"{parts.path}?{parts.query}", body, headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"the bucket does not answer: {error}") from error
        finally:
            connection.close()

    def _check(self, method: str, name: str, response: http.client.HTTPResponse) -> None:
        if response.status in (200, 201, 204, 206):
            return
        if response.status in (400, 401, 403):
            self._urls.refuse(method, name)
        kind = NoRoom if response.status in (507, 413) else Unreachable
        raise kind(f"the bucket answered {response.status} to {method} {name}")


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    until = time.monotonic() + SECONDS
    data = b""
    while len(data) < limit:
        part = response.read(min(CHUNK, limit - len(data)))
        if not part:
            break
        data += part
        if time.monotonic() > until:
            raise Unreachable("the answer takes too long")
    if response.length and len(data) < limit:
        raise Unreachable("the answer broke off")
    return data


def _is_own(name: str) -> bool:
    """Nobody waits for a URL of these: they are what URLs are learned by."""
    return name == CLAIM or name.endswith(("/alive", "/down"))


def _connection(url: str, seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=seconds, context=context)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
