"""Cursors, which say where a page ended. They are opaque to clients."""

from __future__ import annotations

import base64
import binascii

from crucible.core.errors import BadInput


def encode_cursor(mark: str, text: str) -> str:
    """Return a cursor; `mark` names the kind of list, so that cursors of other lists are refused."""
    return base64.urlsafe_b64encode(f"{mark}{text}".encode()).decode().rstrip("=")


def decode_cursor(mark: str, cursor: str) -> str | None:
    """Return the text of a cursor; None if it is invalid or belongs to another list."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.removeprefix(mark) if text.startswith(mark) else None


def bad_cursor(first: str) -> BadInput:
    """Return the error for an invalid cursor; `first` is what the list begins with."""
    return BadInput(
        "The cursor is not valid.",
        fix=f"Use `next` of the previous page unchanged, or leave the cursor out to begin with the {first}.",
        field="cursor",
    )
