from __future__ import annotations

from typing import Any

import pytest

from crucible.client.request.checks import check_names, check_number, check_text, invalid_value
from crucible.core.errors import BadInput


def test_numbers_within_their_bounds_pass() -> None:
    for value in (None, 0, 0.5, 10):
        check_number("size", value, 0, 10)
    check_number("count", 3, 1, 5, whole=True)


@pytest.mark.parametrize(
    ("value", "how", "words"),
    [
        (11, {}, "size must be at most 10"),
        (-1, {}, "size must be at least 0"),
        (0, {"above": True}, "size must be more than 0"),
        (1.5, {"whole": True}, "size must be a whole number"),
        (True, {}, "size must be a number"),
        ("1", {}, "size must be a number"),
        (float("nan"), {}, "size must be a number"),
    ],
)
def test_other_numbers_are_told_with_field_and_value(value: Any, how: dict[str, bool], words: str) -> None:
    with pytest.raises(BadInput, match=words) as raised:
        check_number("size", value, 0, 10, **how)
    assert raised.value.data["field"] == "size"
    assert repr(value) in raised.value.why


@pytest.mark.parametrize("value", [3, None, b"x", "a\0b", "\ud800"])
def test_texts_that_no_request_can_hold(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^name ") as raised:
        check_text("name", value)
    str(raised.value).encode()


def test_texts_pass_as_they_are() -> None:
    assert check_text("name", "zwölf") == "zwölf"
    assert check_text("path", "\udcff") == "\udcff"  # a file name that is not UTF-8


def test_names() -> None:
    assert check_names("places", None) is None
    assert check_names("places", " local ") == ("local",)
    assert check_names("places", ["a", "b", "a"]) == ("a", "b")
    for said in ([], [""], {"a": 1}, 3, [3]):
        with pytest.raises(BadInput, match=r"^places "):
            check_names("places", said)


def test_a_long_value_is_told_by_its_type() -> None:
    assert invalid_value("code", "x" * 1000, "is short").why == "It is str."
