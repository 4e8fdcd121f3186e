from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.client.fake_server import FakeServer

from crucible.client.api import Api
from crucible.client.payload import Payload
from crucible.client.request import make_spec
from crucible.client.submission import any_simulated, check_backends, submit
from crucible.core.errors import BadInput, UnknownName
from crucible.core.spec import EnvironmentSpec, Source
from crucible.core.views.jobs import JobView
from crucible.wire.archive import Entry, unpack

pytestmark = pytest.mark.enable_socket


def payload(*entries: Entry) -> Payload:
    return Payload(("{python}", "a.py"), EnvironmentSpec(), Source(), entries=entries or None)


def send(api: Api, code: Payload, scratch: Path, **fields: object) -> JobView:
    return submit(api, make_spec({**fields, **code.fields()}, str), code, scratch)


def test_code_is_sent_before_the_job_that_names_it(api: Api, server: FakeServer, tmp_path: Path) -> None:
    send(api, payload(Entry.of_bytes("a.py", b"print(1)")), tmp_path / "scratch", name="x")
    spec = server.specs[0]
    assert spec["name"] == "x"
    unpack(io.BytesIO(server.bundles[spec["bundle"]]), tmp_path / "out", max_bytes=1000, max_files=10)
    assert (tmp_path / "out" / "a.py").read_bytes() == b"print(1)"


def test_code_the_server_has_is_not_sent_again(api: Api, server: FakeServer, tmp_path: Path) -> None:
    for _ in range(2):
        send(api, payload(Entry.of_bytes("a.py", b"print(1)")), tmp_path)
    assert [method for method, _path in server.requests].count("PUT") == 1


def test_a_payload_without_files_sends_none(api: Api, server: FakeServer, tmp_path: Path) -> None:
    send(api, payload(), tmp_path)
    assert server.specs[0]["bundle"] is None
    assert server.bundles == {}


def test_an_unknown_backend_is_refused_before_anything_is_sent(api: Api, server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        send(api, payload(Entry.of_bytes("a.py", b"1")), tmp_path, backend="locl")
    assert caught.value.meant == "local"
    assert (server.bundles, server.specs) == ({}, [])


def test_a_file_that_vanishes_while_packing_is_told(api: Api, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    entry = Entry.of_file("a.py", tmp_path / "a.py")
    (tmp_path / "a.py").unlink()
    with pytest.raises(BadInput, match="could not be read"):
        send(api, payload(entry), tmp_path / "scratch")
    assert server.requests == []


def test_places_are_held_against_those_of_the_server(api: Api, server: FakeServer) -> None:
    server.backends.append({"name": "rehearsal", "connected": True, "capabilities": {"simulated": True}})
    with pytest.raises(UnknownName, match="`crucible backends` lists"):
        check_backends(api, ["ssh"])
    with pytest.raises(UnknownName, match="Not connected, and no command connects aws yet"):
        check_backends(api, ["aws"])
    check_backends(api, ["rehearsal", "local"])
    with pytest.raises(UnknownName, match="Did you mean 'rehearsal'"):
        check_backends(api, ["local", "rehersal"])
    assert any_simulated(api, ("local", "rehearsal"))
    assert not any_simulated(api, ("local", None))
