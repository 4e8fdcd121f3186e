from __future__ import annotations

import pytest

from crucible.core.errors import BadInput
from crucible.core.job.tags import MAX_KEY, MAX_TAGS, MAX_VALUE, Tag, parse_tag, parse_tags


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("best", Tag("best")),
        ("lr=3e-4", Tag("lr", "3e-4")),
        (" lr = a=b ", Tag("lr", "a=b")),
        ("lr=", Tag("lr")),
        ("data=/mnt/ä", Tag("data", "/mnt/ä")),
        ("k" * MAX_KEY + "=" + "v" * MAX_VALUE, Tag("k" * MAX_KEY, "v" * MAX_VALUE)),
    ],
)
def test_a_tag_is_read(text: str, tag: Tag) -> None:
    assert parse_tag(text) == tag
    assert parse_tag(str(tag)) == tag


@pytest.mark.parametrize("text", ["", " ", "=", "=x", "a\x00", "a=\n", "\x7f", "k" * 101, "k=" + "v" * 201])
def test_what_is_no_tag_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(BadInput, match="is not a valid tag") as raised:
        parse_tag(text)
    assert "key=value" in raised.value.fix


def test_the_last_value_of_a_key_counts() -> None:
    assert parse_tags(["a=1", "b", "a=2"]) == (Tag("a", "2"), Tag("b"))


def test_there_are_only_so_many() -> None:
    assert len(parse_tags(f"t{n}" for n in range(MAX_TAGS))) == MAX_TAGS
    with pytest.raises(BadInput, match="at most 50"):
        parse_tags(f"t{n}" for n in range(MAX_TAGS + 1))
