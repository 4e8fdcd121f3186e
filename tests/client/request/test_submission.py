from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.client.real_server import RealServer
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

from crucible.client.api import Api
from crucible.client.payload import Payload
from crucible.client.request.job_request import make_spec
from crucible.client.request.submission import any_simulated, check_backends, submit
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import EnvironmentSpec, Source
from crucible.core.views.jobs import JobView
from crucible.storage.layout import bundle_key
from crucible.wire.files.archive import Entry, unpack

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    return (FakeCloud("rehearsal"),)


def payload(*entries: Entry) -> Payload:
    return Payload(("{python}", "a.py"), EnvironmentSpec(), Source(), entries=entries or None)


def send(api: Api, code: Payload, scratch: Path, **fields: object) -> JobView:
    return submit(api, make_spec({**fields, **code.fields()}), code, scratch)


def test_code_is_sent_before_the_job_that_names_it(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    send(real_api, payload(Entry.of_bytes("a.py", b"print(1)")), tmp_path / "scratch", name="x")
    spec = real.specs[0]
    assert spec["name"] == "x"
    stored = real.harness.ports.store.get(bundle_key(spec["bundle"]))
    unpack(io.BytesIO(stored), tmp_path / "out", max_bytes=1000, max_files=10)
    assert (tmp_path / "out" / "a.py").read_bytes() == b"print(1)"


def test_code_the_server_has_is_not_sent_again(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    for _ in range(2):
        send(real_api, payload(Entry.of_bytes("a.py", b"print(1)")), tmp_path)
    assert [method for method, _path in real.requests].count("PUT") == 1


def test_a_payload_without_files_sends_none(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    send(real_api, payload(), tmp_path)
    assert real.specs[0]["bundle"] is None
    assert real.bundles == []


def test_an_unknown_backend_is_refused_before_anything_is_sent(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        send(real_api, payload(Entry.of_bytes("a.py", b"1")), tmp_path, backend="locl")
    assert caught.value.meant == "local"
    assert (real.bundles, real.specs) == ([], [])


def test_a_file_that_vanishes_while_packing_is_told(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    entry = Entry.of_file("a.py", tmp_path / "a.py")
    (tmp_path / "a.py").unlink()
    with pytest.raises(BadInput, match="could not be read"):
        send(real_api, payload(entry), tmp_path / "scratch")
    assert real.requests == []


def test_places_are_held_against_those_of_the_server(real_api: Api, real: RealServer) -> None:
    with pytest.raises(UnknownName, match="crucible backends connect ssh"):
        check_backends(real_api, ["ssh"])
    with pytest.raises(UnknownName, match="Not connected, and no command connects aws"):
        check_backends(real_api, ["aws"])
    check_backends(real_api, ["rehearsal", "local"])
    with pytest.raises(UnknownName, match="Did you mean 'rehearsal'"):
        check_backends(real_api, ["local", "rehersal"])
    assert any_simulated(real_api, ("local", "rehearsal"))
    assert not any_simulated(real_api, ("local", None))
