"""Documents in a store: signed with the standard library, or encrypted with the package `cryptography`.

A document is a JSON object. It belongs to one name, that of its object in the store, and has a number. It consists of
a header line and a body:

    signed 2 <number> <tag>         the body is the JSON; the tag is its HMAC-SHA-256
    encrypted 2 <number> <nonce>    the body is the JSON under ChaCha20-Poly1305

Tag and associated data cover form, version, number and name, so nothing can be changed, moved to another name or
given another number. A document has one encoding: lower-case hex, no white space, sorted keys; any other is refused. An
old document that was put back is not detected here: its reader compares numbers.

A nonce is 96 random bits, drawn for each document. A key belongs to one party of one mailbox and encrypts at most one
document per second, for weeks: far below the 2**32 at which equal nonces become likely. Both forms
derive keys of their own from the party's key, the encrypted one by HKDF.

`cryptography` is imported only to encrypt or decrypt: an agent that needs no encryption runs without it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crucible.wire.documents.messages import derive_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

NONCE_BYTES = 12
_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_SIGNED = re.compile(rb"signed 2 %b ([0-9a-f]{64})\n" % _NUMBER)
_ENCRYPTED = re.compile(rb"encrypted 2 %b ([0-9a-f]{24})\n" % _NUMBER)
_OLD = re.compile(rb"[0-9a-f]{64}\n")
"""The beginning of documents of version 0.1.0."""


class BadDocument(ValueError):
    """The bytes are not a document of this mailbox: foreign, damaged, or for another name."""


class OldDocument(BadDocument):
    """The bytes look like a document of version 0.1.0, which this version cannot read."""


class NoCryptography(Exception):
    """This Python lacks the package `cryptography`. The message says how to install it."""


def encode_document(key: bytes, name: str, number: int, doc: Mapping[str, object], *, encrypted: bool) -> bytes:
    """Return the document for the object `name`. Raises NoCryptography."""
    body = _canonical(doc)
    if not encrypted:
        return b"signed 2 %d %b\n%b" % (number, _tag(key, name, number, body), body)
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = _cipher(key).encrypt(nonce, body, _bound("encrypted", name, number))
    return b"encrypted 2 %d %b\n%b" % (number, nonce.hex().encode(), ciphertext)


def decode_document(key: bytes, name: str, raw: bytes) -> tuple[int, dict[str, Any]]:
    """Return number and content. Raises NoCryptography, and BadDocument for anything that was not written with this key
    for this name.
    """
    number, body = _open(key, name, raw)
    try:
        doc = json.loads(body)
        if not isinstance(doc, dict) or _canonical(doc) != body:
            raise BadDocument("not the canonical form of an object")
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"not a document: {error}") from error
    return number, doc


def check_cryptography() -> None:
    """Raise NoCryptography unless this Python can encrypt."""
    _cipher(b"any key")


def _open(key: bytes, name: str, raw: bytes) -> tuple[int, bytes]:
    signed = _SIGNED.match(raw)
    if signed is not None:
        number, body = int(signed[1]), raw[signed.end() :]
        if not hmac.compare_digest(signed[2], _tag(key, name, number, body)):
            raise BadDocument("the signature does not match")
        return number, body
    encrypted = _ENCRYPTED.match(raw)
    if encrypted is not None:
        number = int(encrypted[1])
        return number, _decrypt(key, bytes.fromhex(encrypted[2].decode()), raw[encrypted.end() :], name, number)
    if _OLD.match(raw):
        raise OldDocument("a document of version 0.1.0")
    raise BadDocument("neither signed nor encrypted, or of another version")


def _decrypt(key: bytes, nonce: bytes, ciphertext: bytes, name: str, number: int) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, ciphertext, _bound("encrypted", name, number))
    except InvalidTag:
        raise BadDocument("it was not encrypted with this key for this name") from None


def _tag(key: bytes, name: str, number: int, body: bytes) -> bytes:
    signed = _bound("signed", name, number) + body
    return hmac.new(derive_secret(key, "document", "signature"), signed, hashlib.sha256).hexdigest().encode()


def _bound(form: str, name: str, number: int) -> bytes:
    return f"{form} 2 {number} {name}\n".encode()


def _canonical(doc: Mapping[str, object]) -> bytes:
    return json.dumps(doc, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _cipher(key: bytes) -> ChaCha20Poly1305:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise _missing(error) from error
    try:
        derived = HKDF(SHA256(), 32, salt=None, info=b"crucible document encryption").derive(key)
        return ChaCha20Poly1305(derived)
    except UnsupportedAlgorithm as error:
        raise _missing(error) from error


def _missing(error: Exception) -> NoCryptography:
    python = sys.executable
    return NoCryptography(
        f"everything in this store has to be encrypted, and {python} cannot do that: {error}. "
        f"Install the package for it: {python} -m pip install cryptography"
    )
