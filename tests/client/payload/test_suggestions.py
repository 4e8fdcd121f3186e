from __future__ import annotations

import pytest
from tests.client.payload.conftest import Ask

from crucible.client.payload import make_payload
from crucible.client.payload.suggestions import nearest_file
from crucible.core.errors import BadInput

KNOWN = ["train.py", "data.csv", "README.md"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("trian.py", "train.py"),
        ("tran.py", "train.py"),
        ("train", "train.py"),
        ("Train.py", "train.py"),
        ("train.ipynb", "train.py"),
        ("main.py", None),
        ("model.py", None),
        ("a.py", None),
        ("evaluate.py", None),
    ],
)
def test_only_what_is_really_near_is_suggested(name: str, near: str | None) -> None:
    assert nearest_file(name, KNOWN) == near


def test_nothing_is_near_nothing() -> None:
    assert nearest_file("train.py", []) is None


def test_an_address_without_its_scheme(ask: Ask) -> None:
    with pytest.raises(BadInput) as caught:
        make_payload("github.com/foo/bar", ask())
    assert "https://github.com/foo/bar" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        make_payload("scripts/foo/bar.py", ask())
    assert "https://" not in caught.value.fix
