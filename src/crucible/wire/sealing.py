"""Sealed documents: small JSON objects that lie where strangers may read and write.

The standard library has no cipher, so one is made of its hashes by the SIV construction: the tag is an HMAC over
name and content, and the content is xored with SHAKE-256 of a second key and that tag. Without the key nothing
shows but the length, and whether two documents of one name are equal; nothing can be changed, or moved to
another name, without being noticed. An old document put back is not noticed here: documents carry numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from crucible.wire.messages import derive_secret

VERSION = 1


class BadMail(ValueError):
    """The bytes are no document of this mailbox: foreign, damaged, or for another name."""


def seal(key: bytes, name: str, doc: Mapping[str, object]) -> bytes:
    """The document, hidden and signed, for the object `name` alone."""
    body = json.dumps({"v": VERSION, **doc}, separators=(",", ":")).encode()
    tag = _tag(key, name, body)
    return tag.hex().encode() + b"\n" + _xor(key, tag, body)


def unseal(key: bytes, name: str, raw: bytes) -> dict[str, Any]:
    """The document in `raw`; BadMail unless it was sealed with this key for this name."""
    head, _, hidden = raw.partition(b"\n")
    try:
        tag = bytes.fromhex(head.decode("ascii"))
        body = _xor(key, tag, hidden)
        if not hmac.compare_digest(tag, _tag(key, name, body)):
            raise BadMail("the seal does not match")
        doc = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadMail(f"not a document: {error}") from error
    if not isinstance(doc, dict) or doc.get("v") != VERSION:
        raise BadMail("a document of another version")
    return doc


def _tag(key: bytes, name: str, body: bytes) -> bytes:
    signed = f"{name}\n".encode() + body
    return hmac.new(derive_secret(key, "seal", "tag"), signed, hashlib.sha256).digest()


def _xor(key: bytes, tag: bytes, data: bytes) -> bytes:
    stream = hashlib.shake_256(derive_secret(key, "seal", "stream") + tag).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")
