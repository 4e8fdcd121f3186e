"""Test the mailbox in a bucket: signed URLs over plain HTTP, and a server with faults."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import Unreachable
from crucible.agent.storelink.bucket import BucketMailbox
from crucible.agent.storelink.urls import SignedUrls

pytestmark = pytest.mark.enable_socket

ALIVE = "parties/p/alive"
BLOB = "parties/p/blobs/x"


class Bucket(ThreadingHTTPServer):
    """A fake bucket. `fault` is the status of the next response; `ranges`: whether it supports range requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.fault: int | None = None
        self.ranges = True
        self.torn = False
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}?signature=right"


class _Handler(BaseHTTPRequestHandler):
    server: Bucket

    def log_message(self, *args: object) -> None:
        pass

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._refused():
            self.server.objects[self._name] = data
            self._answer(200, b"")

    def do_GET(self) -> None:
        data = self.server.objects.get(self._name)
        if self._refused():
            return
        if data is None:
            return self._answer(404, b"")
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if self.server.ranges else 0
        if start >= len(data) > 0:
            return self._answer(416, b"")
        return self._answer(206 if start else 200, data[start:])

    @property
    def _name(self) -> str:
        return self.path.split("?")[0][1:]

    def _refused(self) -> bool:
        fault, self.server.fault = self.server.fault, None
        if fault is None and not self.path.endswith("?signature=right"):
            fault = 403
        if fault is not None:
            self._answer(fault, b"<Error/>")
        return fault is not None

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.server.torn else body)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    yield bucket
    bucket.shutdown()
    bucket.server_close()


@pytest.fixture
def urls(bucket: Bucket) -> SignedUrls:
    known = [(method, name) for method in ("GET", "PUT") for name in (ALIVE, BLOB)]
    return SignedUrls({f"{method} {name}": bucket.url(name) for method, name in known})


def test_what_is_put_can_be_read(bucket: Bucket, urls: SignedUrls) -> None:
    mail = BucketMailbox(urls)
    mail.put(ALIVE, b"one", 3)
    assert mail.get(ALIVE, 10) == b"one"
    assert mail.get(ALIVE, 2) is None
    assert mail.get(BLOB, 10) is None
    mail.put(BLOB, io.BytesIO(b"a file"), 6)
    assert bucket.objects[BLOB] == b"a file"


def test_a_url_for_one_use_is_forgotten(urls: SignedUrls) -> None:
    mail = BucketMailbox(urls)
    mail.put_new(BLOB, b"x")
    with pytest.raises(Unreachable):
        urls.wait_for("PUT", BLOB, 0.0)
    mail.put(ALIVE, b"x", 1)
    mail.put(ALIVE, b"y", 1)


def test_a_url_that_is_refused_is_asked_for_again(bucket: Bucket, urls: SignedUrls) -> None:
    bucket.fault = 403
    with pytest.raises(Unreachable):
        BucketMailbox(urls).put(ALIVE, b"x", 1)
    assert urls.wanted() == (f"PUT {ALIVE}",)


def test_bad_days_have_classes(bucket: Bucket, urls: SignedUrls) -> None:
    mail = BucketMailbox(urls)
    bucket.fault = 507
    with pytest.raises(NoRoom):
        mail.put(BLOB, b"x", 1)
    bucket.fault = 503
    with pytest.raises(Unreachable):
        mail.get(ALIVE, 10)
    bucket.shutdown()
    bucket.server_close()
    with pytest.raises(Unreachable):
        mail.get(ALIVE, 10)


@pytest.mark.parametrize("ranges", [True, False])
def test_fetching_goes_on_in_the_middle(bucket: Bucket, ranges: bool) -> None:
    bucket.ranges = ranges
    bucket.objects["jobs/x"] = b"0123456789"
    mail = BucketMailbox(SignedUrls({"GET bundles/abc": bucket.url("jobs/x")}))
    assert b"".join(mail.fetch("bundles/abc", None, 4)) == b"456789"
    assert b"".join(mail.fetch("bundles/abc", None, 0)) == b"0123456789"
    assert b"".join(mail.fetch("bundles/abc", None, 10)) == b""


def test_an_answer_that_breaks_off_is_not_taken_for_the_object(bucket: Bucket, urls: SignedUrls) -> None:
    bucket.objects[ALIVE] = b"0123456789"
    bucket.torn = True
    with pytest.raises(Unreachable):
        BucketMailbox(urls).get(ALIVE, 100)
    mail = BucketMailbox(SignedUrls({"GET bundles/abc": bucket.url(ALIVE)}))
    with pytest.raises(Unreachable):
        list(mail.fetch("bundles/abc", None, 0))
