"""A mailbox in a bucket, through plain HTTP requests to signed URLs, without credentials."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from crucible.agent.link.channel import NoRoom, skip_bytes, upload_seconds
from crucible.agent.link.connection import Unreachable
from crucible.agent.storelink.mailbox import CHUNK, Content
from crucible.agent.storelink.urls import WAIT_SECONDS, SignedUrls
from crucible.wire.documents.mailbox import CLAIM
from crucible.wire.http.client import BaseUrl, HttpClient, HttpError, Request, Response, ResponseTooLong

SECONDS = 20.0
_AZURE = {"x-ms-blob-type": "BlockBlob"}
"""Azure requires this header, others ignore it."""


class BucketMailbox:
    """A mailbox over signed URLs. They cannot create only, so `put_new` relies on names that are never used twice."""

    pace = 2.0
    is_private = False

    def __init__(self, urls: SignedUrls) -> None:
        self._urls = urls

    def get(self, name: str, limit: int) -> bytes | None:
        with self._answer("GET", name) as response:
            if response.status_code == 404:
                return None
            self._check("GET", name, response)
            with contextlib.suppress(ResponseTooLong):
                return response.read(limit, SECONDS)
        return None

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
            if response.status_code == 416:
                return
            self._check("GET", name, response)
            yield from skip_bytes(response.pieces(CHUNK), start if response.status_code == 200 else 0)

    @contextlib.contextmanager
    def _answer(
        self, method: str, name: str, content: Content = b"", size: int = 0, start: int = 0
    ) -> Iterator[Response]:
        url = self._urls.wait_for(method, name, 0.0 if _is_own(name) else WAIT_SECONDS)
        puts = method == "PUT"
        headers = {**_AZURE, "Content-Length": str(size)} if puts else {}
        if start:
            headers["Range"] = f"bytes={start}-"
        seconds = upload_seconds(size) if puts else SECONDS
        try:
            parts = urlsplit(url)
            client = HttpClient(BaseUrl.parse(f"{parts.scheme}://{parts.netloc}"))
            target = f"{parts.path}?{parts.query}"
            response = client.send(Request(method, target, seconds, SECONDS, headers, content if puts else None))
            with contextlib.closing(client), contextlib.closing(response):
                yield response
        except (HttpError, ValueError) as error:
            raise Unreachable(f"the bucket does not answer: {error}") from error

    def _check(self, method: str, name: str, response: Response) -> None:
        if response.status_code in (200, 201, 204, 206):
            return
        if response.status_code in (400, 401, 403):
            self._urls.refuse(method, name)
        kind = NoRoom if response.status_code in (507, 413) else Unreachable
        raise kind(f"the bucket answered {response.status_code} to {method} {name}")


def _is_own(name: str) -> bool:
    """Return whether URLs arrive through this object: waiting for its own URL would never end."""
    return name == CLAIM or name.endswith(("/alive", "/down"))
