"""Cursors: read back as they were written, and by no other list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crucible.control.jobs import cursors


@given(st.text(max_size=100))
def test_what_is_written_is_opened(text: str) -> None:
    sealed = cursors.encode_cursor("m1:", text)
    assert cursors.decode_cursor("m1:", sealed) == text
    assert cursors.decode_cursor("m2:", sealed) is None
    assert sealed.isascii()
    assert not set(sealed) & set("+/=&?# ")


@given(st.text(max_size=60))
def test_any_other_text_is_none_of_ours(text: str) -> None:
    opened = cursors.decode_cursor("m1:", text)
    assert opened is None or cursors.encode_cursor("m1:", opened).rstrip("=") == text.rstrip("=")


def test_the_refusal_says_what_to_do() -> None:
    error = cursors.bad_cursor("newest")
    assert "leave the cursor out to begin with the newest" in error.fix
    assert error.data["field"] == "cursor"
