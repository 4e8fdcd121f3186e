from __future__ import annotations

import pytest

from crucible.client.versions import satisfies, shown


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (">=3.11", True),
        (">= 3.11, <3.14", True),
        (">=3.12", False),
        (">3.11", True),
        (">3.11.7", False),
        ("<3.11", False),
        ("<=3.11.7", True),
        ("==3.11", False),
        ("==3.11.*", True),
        ("==3.11.7", True),
        ("!=3.11.*", False),
        ("!=3.10.*,>=3", True),
        ("~=3.11", True),
        ("~=3.10.2", False),
        ("~=3.11.2", True),
        ("", True),
        ("something else", True),
    ],
)
def test_ranges(wanted: str, fits: bool) -> None:
    assert satisfies((3, 11, 7), wanted) is fits


def test_shown() -> None:
    assert shown((3, 11, 7)) == "3.11.7"
