from __future__ import annotations

import pytest

from crucible.core.versions import agent_note, versions_differ


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("0.1.0", "0.1.9", False),
        ("0.1.0", "0.2.0", True),
        ("1.0.0", "2.0.0", True),
        ("1.10.0", "1.1.0", True),
        ("0.1.0rc1", "0.1.0", False),
        ("", "0.1.0", False),
        ("unknown", "0.1.0", False),
    ],
)
def test_versions_of_one_line_differ_in_nothing_that_matters(one: str, other: str, expected: bool) -> None:
    assert versions_differ(one, other) is expected
    assert versions_differ(other, one) is expected


def test_an_agent_of_another_line_is_told_of_and_goes_on() -> None:
    assert agent_note("0.1.0", "0.1.3") is None
    note = agent_note("0.1.0", "0.3.0")
    assert note is not None
    assert "0.1.0" in note
    assert "0.3.0" in note
    assert "the job continues" in note
