"""Documents in a store: bound to their name and number, read only by who has the key, and in one spelling only."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.wire.documents.crypto import (
    BadDocument,
    NoCryptography,
    OldDocument,
    _tag,
    check_cryptography,
    decode_document,
    encode_document,
)

KEY = b"a key"
FORMS = pytest.mark.parametrize("encrypted", [False, True], ids=["signed", "encrypted"])

documents = st.dictionaries(st.text(max_size=10), st.one_of(st.none(), st.integers(), st.text(), st.booleans()))


def encoded(doc: dict[str, object], *, encrypted: bool, name: str = "a", number: int = 7) -> bytes:
    return encode_document(KEY, name, number, doc, encrypted=encrypted)


@FORMS
@given(doc=documents, number=st.integers(0, 10**18))
def test_what_is_written_can_be_read(doc: dict[str, object], number: int, encrypted: bool) -> None:
    assert decode_document(KEY, "a", encoded(doc, encrypted=encrypted, number=number)) == (number, doc)


@given(documents)
def test_a_signed_document_has_one_spelling(doc: dict[str, object]) -> None:
    turned = dict(reversed(doc.items()))
    assert encoded(doc, encrypted=False) == encoded(turned, encrypted=False)


def test_what_is_encrypted_does_not_show() -> None:
    doc: dict[str, object] = {"secret": "open sesame"}
    raw = encoded(doc, encrypted=True)
    assert b"sesame" not in raw
    assert b"secret" not in raw
    assert raw != encoded(doc, encrypted=True), "nor whether two documents are equal"


@FORMS
def test_only_the_right_key_and_name_open_it(encrypted: bool) -> None:
    raw = encoded({"x": 1}, encrypted=encrypted, name="parties/host/down")
    for key, name in ((b"another key", "parties/host/down"), (KEY, "parties/host/alive")):
        with pytest.raises(BadDocument):
            decode_document(key, name, raw)


@FORMS
def test_it_cannot_be_given_another_number(encrypted: bool) -> None:
    raw = encoded({"x": 1}, encrypted=encrypted)
    arabic = "\N{ARABIC-INDIC DIGIT SEVEN}".encode()
    for other in (b"6", b"07", b"+7", b"7_0", b" 7", b"-7", b"70", arabic):
        with pytest.raises(BadDocument):
            decode_document(KEY, "a", raw.replace(b" 2 7 ", b" 2 %b " % other, 1))


def test_one_form_is_not_taken_for_the_other() -> None:
    signed, hidden = (encoded({"x": 1}, encrypted=encrypted) for encrypted in (False, True))
    for raw in (signed.replace(b"signed", b"encrypted", 1), hidden.replace(b"encrypted", b"signed", 1)):
        with pytest.raises(BadDocument):
            decode_document(KEY, "a", raw)


@FORMS
@given(data=st.data())
def test_no_change_goes_unnoticed(data: st.DataObject, encrypted: bool) -> None:
    raw = bytearray(encoded({"x": "some text"}, encrypted=encrypted))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadDocument):
        decode_document(KEY, "a", bytes(raw))


@FORMS
def test_a_tag_or_nonce_is_lower_case_hex_without_white_space(encrypted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xab" * size)
    head, _, body = encoded({"x": 1}, encrypted=encrypted).partition(b"\n")
    *words, code = head.split(b" ")
    spaced, upper = code[:2] + b" " + code[2:], code.upper()
    assert upper != code, "no digit of it is a letter"
    for other in (upper, spaced, code + b" ", b" " + code, code + b"\r", code + b"\n", b"0x" + code, code[:-1]):
        with pytest.raises(BadDocument):
            decode_document(KEY, "a", b" ".join([*words, other]) + b"\n" + body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1}',
        b'{"a":1}\n',
        b' {"a":1}',
        b'{"b":1,"a":1}',
        b'{"a":1,"a":1}',
        b'{"a":1.00}',
        b'{"a":1e0}',
        b'{"a":"\\u0041"}',
        '{"a":"é"}'.encode(),
        b'{"a":NaN}',
        b'{"a":1e400}',
        b"[]",
        b"null",
        b"",
        b"[" * 50_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_rightly_signed_has_to_be_canonical_too(body: bytes) -> None:
    with pytest.raises(BadDocument):
        decode_document(KEY, "a", b"signed 2 7 %b\n%b" % (_tag(KEY, "a", 7, body), body))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(raw: bytes) -> None:
    for data in (raw, b"signed 2 7 " + raw, b"encrypted 2 7 " + raw, b"encrypted 2 7 " + b"0" * 24 + b"\n" + raw):
        with pytest.raises(BadDocument):
            decode_document(KEY, "a", data)


@FORMS
def test_torn_documents_are_refused(encrypted: bool) -> None:
    raw = encoded({"x": "some text"}, encrypted=encrypted)
    for cut in range(len(raw)):
        with pytest.raises(BadDocument):
            decode_document(KEY, "a", raw[:cut])


@FORMS
def test_another_version_is_refused(encrypted: bool) -> None:
    raw = encoded({}, encrypted=encrypted)
    with pytest.raises(BadDocument, match="version"):
        decode_document(KEY, "a", raw.replace(b" 2 ", b" 3 ", 1))


def test_a_document_of_version_010_is_told_apart() -> None:
    with pytest.raises(OldDocument):
        decode_document(KEY, "claim", OF_VERSION_010)
    for other in (OF_VERSION_010[1:], OF_VERSION_010.upper(), b" " + OF_VERSION_010):
        with pytest.raises(BadDocument) as caught:
            decode_document(KEY, "claim", other)
        assert not isinstance(caught.value, OldDocument)


def test_numbers_that_json_does_not_know_are_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encoded({"x": float("nan")}, encrypted=False)


def test_without_the_package_what_is_signed_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = encoded({"x": 1}, encrypted=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert decode_document(KEY, "a", encoded({"x": 1}, encrypted=False)) == (7, {"x": 1})
    for work in (
        check_cryptography,
        lambda: encoded({"x": 1}, encrypted=True),
        lambda: decode_document(KEY, "a", hidden),
    ):
        with pytest.raises(NoCryptography, match=f"{sys.executable} -m pip install cryptography"):
            work()


OF_VERSION_010 = bytes.fromhex(
    "6566356533646266616235313265386264353365326264346366666232383934343238656539396463363665653134386433"
    "32626161363765356665656335380ad5a981ece39386339a2e53482102eec5174c07adf2c4066720"
)
"""What that version wrote as the claim `i-1` with the key of these tests."""
