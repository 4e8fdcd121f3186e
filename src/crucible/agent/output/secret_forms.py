"""The forms in which a secret may appear in a program's output.

These are: plain, base64 (also inside a longer text, and wrapped into lines), hexadecimal, percent-encoded (only the
necessary bytes, or every byte), and escaped as in JSON, Python, HTML and the shell. No form contains the end of a line:
each line of a multi-line secret is a separate form. Other encodings (compressed, encrypted, reversed) are not
recognized.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import shlex
import urllib.parse
from collections.abc import Iterable, Iterator

SHORTEST = 4
"""Bytes. Shorter secrets would match everywhere."""
WRAPS = (76, 64)
"""Characters after which tools break base64 into lines."""
SHORTEST_LINE = 8
_ENDS = re.compile(rb"[\r\n]+")
_PERCENT = re.compile(rb"%[0-9A-F]{2}")


def secret_forms(secrets: Iterable[str]) -> set[bytes]:
    """Return every secret in every form, except those that are too short."""
    found = {form for value in secrets for form in _forms_of(value)}
    return {part for form in found for part in _ENDS.split(form) if len(part) >= SHORTEST}


def _forms_of(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogateescape")
    if len(raw) < SHORTEST:
        return
    # Programs often strip values that they read.
    for one in {value, value.strip()} - {""}:
        plain = one.encode("utf-8", "surrogateescape")
        yield plain
        yield from _escaped(one, plain)
        yield from _percent(plain)
        yield from _in_base64(plain)
        hexed = binascii.hexlify(plain)
        yield from (hexed, hexed.upper())


def _escaped(value: str, raw: bytes) -> Iterator[bytes]:
    """Yield the value as escaped in source code and documents."""
    once = json.dumps(value)[1:-1]
    for text in (
        once,
        json.dumps(once)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(raw)[2:-1],
        html.escape(value),
        shlex.quote(value).strip("'"),
    ):
        yield text.encode("utf-8", "surrogateescape")


def _percent(raw: bytes) -> Iterator[bytes]:
    every = "".join(f"%{byte:02X}" for byte in raw)
    for quoted in (urllib.parse.quote(raw, safe=""), urllib.parse.quote(raw), urllib.parse.quote_plus(raw), every):
        upper = quoted.encode()
        yield upper
        yield _PERCENT.sub(lambda found: found.group().lower(), upper)


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """Yield the base64 of the value at each of the three offsets that it may have in a longer text.

    Characters at either end also encode bits of the neighbouring bytes, so those are left out.
    """
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        first = (0, 2, 3)[before]
        last = len(encoded) - (0, 3, 2)[(before + len(raw)) % 3]
        middle = encoded[first:last].rstrip(b"=")
        for found in (middle, middle.replace(b"+", b"-").replace(b"/", b"_")):
            yield found
            if before == 0:
                yield from _wrapped(found)


def _wrapped(text: bytes) -> Iterator[bytes]:
    for wrap in WRAPS:
        lines = [text[at : at + wrap] for at in range(0, len(text), wrap)]
        yield from (line for line in lines if len(line) >= SHORTEST_LINE)
