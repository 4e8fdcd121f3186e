"""Ids: sortable, with a prefix, and a short form for people.

An id is `<prefix>-<26 characters>`: 48 bits of milliseconds, then 80 random bits, in Crockford's base 32, so
ids sort by creation. Users see and type the short form, `job-` and the last 6 characters; any unambiguous
ending works.
"""

from __future__ import annotations

import enum
import re

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY = 26
_SHORT = 6


class Prefix(enum.StrEnum):
    JOB = "job"
    ATTEMPT = "att"
    MACHINE = "mch"
    CHECKPOINT = "ckp"
    GROUP = "grp"
    DEPLOYMENT = "dep"
    USER = "usr"
    TOKEN = "tok"
    NOTE = "nte"
    HOOK = "hook"
    SESSION = "ses"


_ID = re.compile(rf"({'|'.join(Prefix)})-[{ALPHABET}]{{{_BODY}}}")


def make_id(prefix: Prefix, milliseconds: int, random_bits: int) -> str:
    """Return the id for this instant and these 80 random bits."""
    value = (milliseconds & ((1 << 48) - 1)) << 80 | (random_bits & ((1 << 80) - 1))
    return f"{prefix.value}-{_encode(value)}"


def is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


def short(full: str) -> str:
    """Return the short form of an id: `job-` and the last six characters."""
    prefix, _, body = full.partition("-")
    return f"{prefix}-{body[-_SHORT:]}"


def _encode(value: int) -> str:
    out = []
    for _ in range(_BODY):
        value, digit = divmod(value, 32)
        out.append(ALPHABET[digit])
    return "".join(reversed(out))
