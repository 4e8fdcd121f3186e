"""Names and documents of a mailbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crucible.wire.documents import mailbox as m
from crucible.wire.documents.crypto import BadDocument, encode_document

KEY = m.host_key(b"a nonce", "mch-1")


FORMS = pytest.mark.parametrize("encrypted", [False, True], ids=["signed", "encrypted"])


@FORMS
def test_documents_come_back(encrypted: bool) -> None:
    alive = m.Heartbeat("a" * 24, 3, ("PUT x", "GET y"), '{"cpus": 2}')
    assert m.decode_heartbeat(KEY, "host", m.encode_heartbeat(KEY, "host", alive, encrypted=encrypted)) == alive
    down = m.ControlDocument(7, "a" * 24, 3, {"acked": 1}, {"PUT x": "https://x"})
    assert (
        m.decode_control_document(KEY, "host", m.encode_control_document(KEY, "host", down, encrypted=encrypted))
        == down
    )
    claim = m.Claim("i-1")
    assert m.decode_claim(KEY, m.encode_claim(KEY, claim, encrypted=encrypted)) == claim


@FORMS
def test_what_one_party_was_told_is_nothing_to_another(encrypted: bool) -> None:
    raw = m.encode_control_document(KEY, "host", m.ControlDocument(7, "a" * 24, 3), encrypted=encrypted)
    with pytest.raises(BadDocument):
        m.decode_control_document(KEY, "att-1.0", raw)
    with pytest.raises(BadDocument):
        m.decode_heartbeat(KEY, "host", raw)


def test_a_document_without_its_parts_is_refused() -> None:
    for doc in ({}, {"life": "", "count": True, "body": {}, "urls": {}}, {"life": "", "count": 1, "body": []}):
        with pytest.raises(BadDocument):
            m.decode_control_document(
                KEY, "host", encode_document(KEY, m.control_document_name("host"), 1, doc, encrypted=False)
            )


@pytest.mark.parametrize(("mode", "private"), [(0o700, True), (0o500, True), (0o710, False), (0o704, False)])
def test_a_folder_is_private_by_its_mode(tmp_path: Path, mode: int, private: bool) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(mode)
    assert m.is_private(folder) is private


def test_a_folder_of_another_user_is_not_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    assert m.is_private(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not m.is_private(tmp_path)


def test_a_folder_that_is_not_there_is_not_private(tmp_path: Path) -> None:
    assert not m.is_private(tmp_path / "away")


def test_wants_are_bounded() -> None:
    alive = m.Heartbeat("a" * 24, 1, tuple(f"PUT {n}" for n in range(1000)))
    assert (
        len(m.decode_heartbeat(KEY, "host", m.encode_heartbeat(KEY, "host", alive, encrypted=False)).wants)
        == m.MAX_WANTS
    )


def test_parties() -> None:
    assert m.parse_runner_party(m.runner_party("att-01hf", 12)) == ("att-01hf", 12)
    for name in ("host", "a.b", "a.-1", "a.01", ".1", "a/b.1", "a.1234567"):
        assert m.parse_runner_party(name) is None, name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a.b", "a b", "x" * 65, "a\n"])
def test_ids_that_are_none_have_no_mailbox(name: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        m.mailbox_folder(name)


def test_segments_have_names_of_their_own() -> None:
    first, second = m.new_incarnation(), m.new_incarnation()
    assert first != second
    assert m.is_segment(m.segment_name("host", first, 1))
    assert not m.is_segment("parties/host/up/1")
    assert m.segment_name("p", first, 9) < m.segment_name("p", first, 10)


def test_equal_content_of_two_outputs_has_two_names() -> None:
    sha256 = "0" * 64
    names = {m.artifact_blob("p", "a", sha256), m.artifact_blob("p", "b", sha256), m.checkpoint_blob("p", sha256)}
    assert len(names | {m.log_blob("p", 1, sha256), m.log_blob("p", 2, sha256)}) == 5
