"""Sealed documents: hidden, bound to their name, and read only by who has the key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.wire.sealing import BadMail, seal, unseal

KEY = b"a key"

documents = st.dictionaries(
    st.text(max_size=10).filter(lambda name: name != "v"), st.one_of(st.none(), st.integers(), st.text(), st.booleans())
)


@given(documents)
def test_what_is_sealed_can_be_opened(doc: dict[str, object]) -> None:
    raw = seal(KEY, "a", doc)
    assert unseal(KEY, "a", raw) == {"v": 1, **doc}
    assert raw == seal(KEY, "a", doc), "the same document is the same bytes"


def test_the_content_does_not_show() -> None:
    raw = seal(KEY, "a", {"secret": "open sesame"})
    assert b"sesame" not in raw
    assert b"secret" not in raw


def test_only_the_right_key_and_name_open_it() -> None:
    raw = seal(KEY, "parties/host/down", {"x": 1})
    for key, name in ((b"another key", "parties/host/down"), (KEY, "parties/host/alive")):
        with pytest.raises(BadMail):
            unseal(key, name, raw)


@given(st.data())
def test_no_change_goes_unnoticed(data: st.DataObject) -> None:
    raw = bytearray(seal(KEY, "a", {"x": "some text"}))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadMail):
        unseal(KEY, "a", bytes(raw))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(BadMail):
        unseal(KEY, "a", raw)


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 70])
def test_torn_documents_are_refused(cut: int) -> None:
    with pytest.raises(BadMail):
        unseal(KEY, "a", seal(KEY, "a", {"x": "some text"})[:cut])


def test_another_version_is_refused() -> None:
    with pytest.raises(BadMail, match="version"):
        unseal(KEY, "a", seal(KEY, "a", {"v": 2}))
