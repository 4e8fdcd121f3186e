from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.client.fake_server import FakeServer

from crucible.client.api import Api
from crucible.client.payload import Payload
from crucible.client.submission import submit
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput, UnknownName
from crucible.core.spec import EnvironmentSpec, Source
from crucible.wire.archive import Entry, unpack

pytestmark = pytest.mark.enable_socket


def payload(*entries: Entry) -> Payload:
    return Payload(("{python}", "a.py"), EnvironmentSpec(), Source(), entries=entries or None)


def test_code_is_sent_before_the_job_that_names_it(api: Api, server: FakeServer, tmp_path: Path) -> None:
    submit(api, payload(Entry.of_bytes("a.py", b"print(1)")), Wishes(name="x"), tmp_path / "scratch")
    spec = server.specs[0]
    assert spec["name"] == "x"
    unpack(io.BytesIO(server.bundles[spec["bundle"]]), tmp_path / "out", max_bytes=1000, max_files=10)
    assert (tmp_path / "out" / "a.py").read_bytes() == b"print(1)"


def test_code_the_server_has_is_not_sent_again(api: Api, server: FakeServer, tmp_path: Path) -> None:
    for _ in range(2):
        submit(api, payload(Entry.of_bytes("a.py", b"print(1)")), Wishes(), tmp_path)
    assert [method for method, _path in server.requests].count("PUT") == 1


def test_a_payload_without_files_sends_none(api: Api, server: FakeServer, tmp_path: Path) -> None:
    submit(api, payload(), Wishes(), tmp_path)
    assert server.specs[0]["bundle"] is None
    assert server.bundles == {}


def test_an_unknown_backend_is_refused_before_anything_is_sent(api: Api, server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        submit(api, payload(Entry.of_bytes("a.py", b"1")), Wishes(backend="locl"), tmp_path)
    assert caught.value.meant == "local"
    assert (server.bundles, server.specs) == ({}, [])


def test_absurd_numbers_are_refused_before_anything_is_sent(api: Api, server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--cpus"):
        submit(api, payload(Entry.of_bytes("a.py", b"1")), Wishes(resources={"cpus": 1e9}), tmp_path)
    assert server.requests == []


def test_a_file_that_vanishes_while_packing_is_told(api: Api, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    entry = Entry.of_file("a.py", tmp_path / "a.py")
    (tmp_path / "a.py").unlink()
    with pytest.raises(BadInput, match="could not be read"):
        submit(api, payload(entry), Wishes(), tmp_path / "scratch")
    assert server.requests == []
