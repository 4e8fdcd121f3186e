"""Libraries loaded without what they can do without."""

from __future__ import annotations

import sys

import pytest

from crucible.server.loading import without

RARE = "wsgiref.handlers"
"""Of the standard library, and used by nothing here."""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, RARE, raising=False)


def test_what_is_hidden_cannot_be_loaded_until_it_is_over() -> None:
    with without(RARE), pytest.raises(ModuleNotFoundError):
        __import__(RARE)
    assert RARE not in sys.modules
    assert __import__(RARE)


def test_what_is_loaded_already_stays() -> None:
    __import__(RARE)
    loaded = sys.modules[RARE]
    with without(RARE):
        assert __import__(RARE)
    assert sys.modules[RARE] is loaded


def test_it_is_over_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), without(RARE):
        1 / 0  # noqa: B018
    assert __import__(RARE)
