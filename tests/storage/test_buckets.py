"""The stores in buckets, each against a server on the loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.faults.proxy import Fault, Rule, fault_proxy
from tests.storage.conformance import LARGE, StoreContract
from tests.storage.fake_gcs import DENIED, PAGE
from tests.storage.servers import Server

from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.storage.buckets import PART
from crucible.storage.errors import NoSuchStore, StorageError, StoreDenied, StoreUnreachable
from crucible.storage.open_store import open_store
from crucible.storage.options import StoreOptions
from crucible.storage.store import Signs, Store

pytestmark = pytest.mark.enable_socket
SOON = 30
"""Seconds: far above the deadlines the tests set, far below those that are the default."""


def ask(url: str, method: str = "GET", data: bytes | None = None) -> bytes:
    headers = {"x-ms-blob-type": "BlockBlob"} if data is not None else {}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=SOON) as answer:
        return bytes(answer.read())


class BucketContract(StoreContract):
    """What holds in addition of stores that are reached over a network. Subclasses give `server`."""

    @pytest.fixture
    def store(self, server: Server) -> Store:
        return server.open()

    def test_prefixes_are_apart(self, server: Server) -> None:
        one, other = server.open(), server.open()
        one.put("k", b"1")
        assert list(other.list("")) == []
        assert other.size("k") is None
        assert server.open(str(one.address)).get("k") == b"1"

    def test_an_upload_that_is_cut_leaves_nothing(self, server: Server) -> None:
        assert server.options.endpoint
        direct = server.open()
        for sort in ("put", "put_new"):
            with fault_proxy(server.options.endpoint) as line:
                line.cut_after(LARGE // 2)
                store = server.open(str(direct.address), endpoint=line.url, request_seconds=10, retries=1)
                with pytest.raises(StoreUnreachable):
                    getattr(store, sort)("k", b"x" * LARGE)
                assert line.counts()["cut_after"]
        assert direct.size("k") is None
        assert list(direct.list("")) == []
        direct.put("k", b"whole")
        assert list(direct.list("")) == [("k", 5)]

    def test_a_download_that_is_cut_is_told(self, server: Server) -> None:
        assert server.options.endpoint
        direct = server.open()
        direct.put("k", b"x" * LARGE)
        with fault_proxy(server.options.endpoint) as line:
            line.cut_after(LARGE // 2)
            store = server.open(str(direct.address), endpoint=line.url, request_seconds=10, retries=1)
            with pytest.raises(StoreUnreachable):
                store.get("k")
            assert line.counts()["cut_after"]

    def test_bad_credentials_are_told_with_the_fix(self, server: Server) -> None:
        url = server.url()
        server.open(url).put("k", b"1")
        store = server.open(url, secret_key=Secret("d3Jvbmc="))
        for call in (
            store.get,
            store.size,
            store.delete,
            lambda key: store.put(key, b"2"),
            lambda _: [*store.list("")],
        ):
            with pytest.raises(StoreDenied) as caught:
                call("k")
            assert "store_secret_key" in caught.value.fix
            assert caught.value.http_status == 503
            assert "d3Jvbmc=" not in f"{caught.value} {caught.value.__cause__}"
        assert server.open(url).get("k") == b"1"

    def test_a_missing_bucket_is_told_apart_from_a_missing_object(self, server: Server) -> None:
        store = server.open(f"{server.scheme}://no-such-bucket")
        with pytest.raises(NoSuchStore):
            store.check()
        with pytest.raises(NoSuchStore, match="Create the bucket"):
            list(store.list(""))

    def test_a_server_that_is_gone_is_told_soon(self, server: Server) -> None:
        store = server.open(endpoint="http://127.0.0.1:1", retries=2)
        started = time.monotonic()
        for call in (
            store.get,
            store.size,
            store.delete,
            lambda key: store.put(key, b"1"),
            lambda _: [*store.list("")],
        ):
            with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1") as caught:
                call("k")
            assert "store_endpoint" in caught.value.fix
        assert time.monotonic() - started < SOON

    def test_a_server_that_says_nothing_is_left_at_the_deadline(self, server: Server) -> None:
        with fault_proxy("http://127.0.0.1:1", Rule(Fault.BLACK_HOLE)) as line:
            store = server.open(endpoint=line.url, request_seconds=0.5)
            started = time.monotonic()
            for call in (store.get, lambda key: store.put(key, b"1"), lambda key: store.put_new(key, b"1" * LARGE)):
                with pytest.raises(StoreUnreachable, match="in time"):
                    call("k")
            assert time.monotonic() - started < SOON

    def test_content_of_one_part_and_one_byte_more(self, server: Server) -> None:
        store = server.open()
        for size in (PART, PART + 1):
            assert store.put("k", b"x" * size).size == store.size("k") == size
            assert store.put_new(f"new-{size}", iter([b"x" * size])) is True
            assert sum(map(len, store.open_range(f"new-{size}"))) == size


class SigningContract(BucketContract):
    """What holds in addition where the server checks signatures."""

    def test_a_signed_url_reads_and_writes_without_credentials(self, server: Server) -> None:
        store = server.open()
        assert isinstance(store, Signs)
        store.put("a-b/k_1.x", b"abc")
        assert ask(store.signed_url("a-b/k_1.x", "GET", 60)) == b"abc"
        ask(store.signed_url("a-b/k_1.x", "PUT", 60), "PUT", b"new")
        assert store.get("a-b/k_1.x") == b"new"

    def test_a_signed_url_is_for_one_key_and_one_method(self, server: Server) -> None:
        store = server.open()
        store.put("k", b"abc")
        store.put("other", b"not this one")
        url = store.signed_url("k", "GET", 60)
        for wrong, method in ((url.replace("/k?", "/other?"), "GET"), (url, "DELETE"), (url.partition("?")[0], "GET")):
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(wrong, method)
            assert 400 <= caught.value.code < 500
            caught.value.close()
        assert store.get("k") == b"abc"

    @pytest.mark.parametrize("seconds", [0, -1, 8 * 24 * 3600])
    def test_a_signed_url_lasts_up_to_a_week(self, seconds: int, server: Server) -> None:
        with pytest.raises(BadInput, match="7 days"):
            server.open().signed_url("k", "GET", seconds)


class TestS3(SigningContract):
    @pytest.fixture
    def server(self, s3_server: Server) -> Server:
        return s3_server

    def test_a_listing_goes_on_over_its_pages(self, server: Server) -> None:
        store = server.open()
        keys = {f"many/{n:05d}" for n in range(1_050)}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"1"), keys))
        assert {key for key, _ in store.list("many")} == keys

    def test_the_variables_of_somebody_else_are_not_mixed_in(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        for name in ("AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "somebody else's")
        assert server.open().put("k", b"1").size == 1

    def test_the_variables_of_the_provider_are_used_where_nothing_is_given(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = server.options
        assert given.endpoint
        assert given.access_key
        assert given.secret_key
        monkeypatch.setenv("AWS_ENDPOINT_URL", given.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", given.access_key.reveal())
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given.secret_key.reveal())
        store = open_store(server.url(), StoreOptions(allow_http=True))
        assert store.put("k", b"1").size == 1
        with pytest.raises(StorageError, match="http://"):
            open_store(server.url()).put("k", b"1")

    def test_without_any_credentials_the_fix_is_told(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
        store = server.open(access_key=None, secret_key=None, retries=0)
        with pytest.raises(StoreDenied, match="no credentials") as caught:
            store.get("k")
        assert "store_access_key" in caught.value.fix

    @pytest.mark.parametrize("key", ["a b+c", "é%41", "x=y&z"])
    def test_a_signed_url_of_an_odd_key(self, key: str, server: Server) -> None:
        store = server.open()
        store.put(key, b"abc")
        assert ask(store.signed_url(key, "GET", 60)) == b"abc"

    def test_strangers_are_denied(self, server: Server) -> None:
        with pytest.raises(StoreDenied):
            server.open(anonymous=True).get("k")


class TestAzure(SigningContract):
    @pytest.fixture
    def server(self, azure_server: Server) -> Server:
        return azure_server

    def test_parts_that_a_broken_put_left_are_not_taken_for_the_object(self, server: Server) -> None:
        store = server.open()
        ask(store.signed_url("k", "PUT", 60) + "&comp=block&blockid=QUFB", "PUT", b"half")
        assert list(store.list("")) == []
        for size in (5, LARGE):
            with pytest.raises(StorageError, match="was interrupted"):
                store.put_new("k", b"x" * size)
        assert list(store.list("")) == []
        store.put("k", b"whole")
        assert store.get("k") == b"whole"

    def test_names_that_would_be_signed_wrongly_are_refused(self, server: Server) -> None:
        for key in ("a b", "é", "a%23b"):
            with pytest.raises(StorageError, match="no signed URL"):
                server.open().signed_url(key, "GET", 60)


class TestGcs(BucketContract):
    """Against a fake of the calls that the client makes, not against a server of Google's."""

    @pytest.fixture
    def server(self, gcs_server: Server) -> Server:
        return gcs_server

    def test_bad_credentials_are_told_with_the_fix(self, server: Server) -> None:
        store = server.open(f"gs://{DENIED}")
        for call in (
            store.get,
            store.size,
            store.delete,
            lambda key: store.put(key, b"2"),
            lambda _: [*store.list("")],
        ):
            with pytest.raises(StoreDenied) as caught:
                call("k")
            assert "store_secret_key" in caught.value.fix

    def test_a_service_account_signs_without_asking_anybody(self, server: Server) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl makes the key of this test. To fix it: apt-get install openssl")
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA"], capture_output=True, text=True, check=True)
        account = {"client_email": "me@example.org", "private_key": made.stdout, "private_key_id": "1"}
        store = server.open(endpoint="http://127.0.0.1:1", secret_key=Secret(json.dumps(account)), retries=0)
        url = urlsplit(store.signed_url("a b", "GET", 60))
        assert url.path == f"/{store.address.bucket}/{store.address.prefix}/a%20b"
        assert {"X-Goog-Expires", "X-Goog-Signature"} <= parse_qs(url.query).keys()

    def test_a_listing_goes_on_over_its_pages(self, server: Server) -> None:
        store = server.open()
        keys = {f"many/{n}" for n in range(3 * PAGE + 1)}
        for key in keys:
            store.put(key, b"1")
        assert {key for key, _ in store.list("many")} == keys
