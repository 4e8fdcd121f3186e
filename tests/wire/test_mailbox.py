"""Names and documents of a mailbox."""

from __future__ import annotations

import pytest

from crucible.wire import mailbox as m
from crucible.wire.sealing import BadMail, seal

KEY = m.host_key(b"a nonce", "mch-1")


def test_documents_come_back() -> None:
    alive = m.Alive("a" * 24, 3, ("PUT x", "GET y"), '{"cpus": 2}')
    assert m.decode_alive(KEY, "host", m.encode_alive(KEY, "host", alive)) == alive
    down = m.Down(7, "a" * 24, 3, {"acked": 1}, {"PUT x": "https://x"})
    assert m.decode_down(KEY, "host", m.encode_down(KEY, "host", down)) == down
    assert m.decode_claim(KEY, m.encode_claim(KEY, m.Claim("i-1"))) == m.Claim("i-1")


def test_a_document_without_its_parts_is_refused() -> None:
    for doc in ({}, {"number": True, "life": "", "count": 1, "body": {}, "urls": {}}, {"number": 1, "body": []}):
        with pytest.raises(BadMail):
            m.decode_down(KEY, "host", seal(KEY, m.down_name("host"), doc))


def test_wants_are_bounded() -> None:
    alive = m.Alive("a" * 24, 1, tuple(f"PUT {n}" for n in range(1000)))
    assert len(m.decode_alive(KEY, "host", m.encode_alive(KEY, "host", alive)).wants) == m.MAX_WANTS


def test_parties() -> None:
    assert m.attempt_of(m.party_of("att-01hf", 12)) == ("att-01hf", 12)
    for name in ("host", "a.b", "a.-1", "a.01", ".1", "a/b.1", "a.1234567"):
        assert m.attempt_of(name) is None, name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a.b", "a b", "x" * 65, "a\n"])
def test_ids_that_are_none_have_no_mailbox(name: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        m.mailbox(name)


def test_segments_have_names_of_their_own() -> None:
    first, second = m.new_life(), m.new_life()
    assert first != second
    assert m.is_segment(m.segment_name("host", first, 1))
    assert not m.is_segment("parties/host/up/1")
    assert m.segment_name("p", first, 9) < m.segment_name("p", first, 10)


def test_equal_content_of_two_outputs_has_two_names() -> None:
    sha256 = "0" * 64
    names = {m.artifact_blob("p", "a", sha256), m.artifact_blob("p", "b", sha256), m.checkpoint_blob("p", sha256)}
    assert len(names | {m.log_blob("p", 1, sha256), m.log_blob("p", 2, sha256)}) == 5
