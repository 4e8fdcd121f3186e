"""How the ports of `crucible ports` are written."""

from __future__ import annotations

import pytest

from crucible.cli.jobs.ports import parse_pair
from crucible.core.errors import BadInput


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("8888", (8888, None)), ("8888:9999", (8888, 9999)), ("1:0", (1, 0)), ("65535:65535", (65535, 65535))],
)
def test_a_port_and_where_it_is_to_be(text: str, wanted: tuple[int, int | None]) -> None:
    assert parse_pair(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "65536", "http", "80:", ":80", "80:x", "1:2:3", "-1", "８０", "1" * 400])
def test_what_names_none(text: str) -> None:
    with pytest.raises(BadInput, match="is not a port"):
        parse_pair(text)
