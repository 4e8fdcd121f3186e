"""A fake of Google Cloud Storage's XML interface: the calls that the client makes, with generations as conditions.

It checks no signatures. The bucket DENIED refuses everybody.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.storage.servers import BUCKET, Server

from crucible.core.secret import Secret
from crucible.storage.options import StoreOptions

DENIED = "denied-bucket"
PAGE = 20
KEY = json.dumps({"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})


class Objects:
    """What is stored: name to (tag, bytes). Uploads in parts are kept beside it until they are completed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: dict[str, tuple[str, bytes]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(1)

    def store(self, name: str, data: bytes, *, only_new: bool) -> str | None:
        """The new tag; None if something is there that must not be replaced."""
        with self.lock:
            if only_new and name in self.found:
                return None
            tag = f'"{hashlib.md5(data).hexdigest()}-{next(self.numbers)}"'
            self.found[name] = (tag, data)
            return tag

    def page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        with self.lock:
            names = sorted(name for name in self.found if name.startswith(prefix) and name > after)
        return names[:PAGE], len(names) > PAGE


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def do_GET(self) -> None:
        if self._is_welcome():
            if "list-type" in self.query:
                self._list()
            else:
                self._read()

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        data = self._body()
        if data is None or not self._is_welcome():
            return
        if "uploadId" in self.query:
            self.objects.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = data
            return self._answer(200, ETag='"part"')
        self._store(data, "")

    def do_POST(self) -> None:
        if self._body() is None or not self._is_welcome():
            return
        if "uploadId" not in self.query:
            upload = f"upload-{next(self.objects.numbers)}"
            self.objects.uploads[upload] = {}
            answer = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, answer)
        parts = self.objects.uploads.pop(self.query["uploadId"])
        data = b"".join(parts[number] for number in sorted(parts))
        self._store(data, '<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>')

    def do_DELETE(self) -> None:
        if not self._is_welcome():
            return
        if "uploadId" in self.query:
            self.objects.uploads.pop(self.query["uploadId"], None)
            return self._answer(204)
        with self.objects.lock:
            found = self.objects.found.pop(self.name, None)
        return self._answer(204) if found else self._refuse(404, "NoSuchKey")

    def _body(self) -> bytes | None:
        """None if the line was cut before all of it came."""
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        self.close_connection = len(data) < length
        return None if self.close_connection else data

    def _is_welcome(self) -> bool:
        parts = urlsplit(self.path)
        bucket, _, name = parts.path.lstrip("/").partition("/")
        self.name = unquote(name)
        self.query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if unquote(bucket) == BUCKET:
            return True
        self._refuse(*((403, "AccessDenied") if unquote(bucket) == DENIED else (404, "NoSuchBucket")))
        return False

    def _store(self, data: bytes, answer: str) -> None:
        only_new = self.headers.get("x-goog-if-generation-match") == "0"
        tag = self.objects.store(self.name, data, only_new=only_new)
        if tag is None:
            return self._refuse(412, "PreconditionFailed")
        self._answer(200, answer, ETag=tag, **{"x-goog-generation": str(next(self.objects.numbers))})

    def _read(self) -> None:
        tag, data = self.objects.found.get(self.name, ("", None))
        if data is None:
            return self._refuse(404, "NoSuchKey")
        if self.headers.get("If-Match", tag) != tag:
            return self._refuse(412, "PreconditionFailed")
        headers = {"ETag": tag, "Last-Modified": formatdate(usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self._answer(200, data, **headers)
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
        self._answer(206, data[start:end], **headers, **{"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})

    def _list(self) -> None:
        names, more = self.objects.page(self.query.get("prefix", ""), self.query.get("continuation-token", ""))
        token = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        items = "".join(self._item(name) for name in names)
        self._answer(200, f"<ListBucketResult>{token}{items}</ListBucketResult>")

    def _item(self, name: str) -> str:
        tag, data = self.objects.found[name]
        size, when = f"<Size>{len(data)}</Size>", f"<LastModified>{datetime.now(UTC).isoformat()}</LastModified>"
        return f"<Contents><Key>{escape(name)}</Key>{size}{when}<ETag>{tag}</ETag></Contents>"

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>It said no.</Message></Error>")

    def _answer(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


class Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def fake_gcs() -> Iterator[Server]:
    handler = type("Handler", (Handler,), {"objects": Objects()})
    with Listening(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield Server("gs", StoreOptions(f"http://127.0.0.1:{listening.server_address[1]}", secret_key=Secret(KEY)))
        listening.shutdown()
