from __future__ import annotations

import pytest

from crucible.wire.python_versions import BadVersion, version_matches


@pytest.mark.parametrize(
    ("wanted", "yes", "no"),
    [
        ("3", ["3.9.1", "3.14.0"], ["2.7.18"]),
        ("3.1", ["3.1.4"], ["3.11.4"]),
        ("3.11.*", ["3.11.4"], ["3.10.4"]),
        (">=3.9", ["3.9.0", "3.10.2", "4.0.0"], ["3.8.20"]),
        (">= 3.9 , < 3.13", ["3.12.9"], ["3.13.0", "3.8.1"]),
        (">3.9", ["3.9.1"], ["3.9.0"]),
        ("<=3.11", ["3.11.0", "3.10.9"], ["3.11.1"]),
        ("==3.11.*", ["3.11.0", "3.11.9"], ["3.1.1", "3.12.0"]),
        ("==3.11", ["3.11.0"], ["3.11.4"]),
        ("!=3.11.*,>=3.10", ["3.10.1", "3.12.0"], ["3.11.4"]),
        ("!=3.11.4", ["3.11.5"], ["3.11.4"]),
        ("~=3.10", ["3.10.0", "3.13.1"], ["3.9.9", "4.0.0"]),
        ("~=3.10.2", ["3.10.2", "3.10.9"], ["3.10.1", "3.11.0"]),
        (">=3.9,<4.0.0a1,", ["3.13.0"], ["4.0.0"]),
    ],
)
def test_what_fits(wanted: str, yes: list[str], no: list[str]) -> None:
    assert [version for version in yes if not version_matches(version, wanted)] == []
    assert [version for version in no if version_matches(version, wanted)] == []


@pytest.mark.parametrize("text", ["", ",", "newest", "=>3.9", ">=3.9,nonsense", "/usr/bin/python"])
def test_what_says_nothing(text: str) -> None:
    with pytest.raises(BadVersion, match="is not a Python version"):
        version_matches("3.8.0", text)
