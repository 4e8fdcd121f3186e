"""Cursors: where a page ended, in a form that nobody is meant to read or make."""

from __future__ import annotations

import base64
import binascii

from crucible.core.errors import BadInput


def encode_cursor(mark: str, text: str) -> str:
    """`mark` tells what kind of list it is of."""
    return base64.urlsafe_b64encode(f"{mark}{text}".encode()).decode().rstrip("=")


def decode_cursor(mark: str, cursor: str) -> str | None:
    """What was written; None for what is none of ours, or of another list."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.removeprefix(mark) if text.startswith(mark) else None


def bad_cursor(first: str) -> BadInput:
    """`first`: where a list begins."""
    return BadInput(
        "The cursor is not one of ours.",
        fix=f"Take it unchanged from `next` of the page before, or leave it out to begin at the {first}.",
        field="cursor",
    )
