from __future__ import annotations

import pytest

from crucible.client.transport.problems import error_from, error_object
from crucible.core.errors import (
    BadInput,
    CrucibleError,
    DiskFull,
    NotAllowed,
    NotFound,
    Trouble,
    UnknownName,
    Unreachable,
)


def test_the_code_decides_and_the_words_are_kept() -> None:
    error = error_from({"code": "disk_full", "detail": "Full.", "why": "w", "fix": "f", "free": 3}, 507)
    assert type(error) is DiskFull
    assert (error.what, error.why, error.fix, error.data["free"]) == ("Full.", "w", "f", 3)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadInput),
        (401, NotAllowed),
        (404, NotFound),
        (418, BadInput),
        (503, Unreachable),
        (500, Trouble),
    ],
)
def test_without_a_known_code_the_status_decides(status: int, kind: type[CrucibleError]) -> None:
    error = error_from({"code": "brand_new", "title": "New"}, status)
    assert type(error) is kind
    assert error_object(error)["code"] == "brand_new"


def test_an_unknown_name_keeps_what_was_meant() -> None:
    error = error_from({"code": "unknown_name", "detail": "No backend 'loca'.", "meant": "local"}, 422)
    assert isinstance(error, UnknownName)
    assert error.meant == "local"
    assert error.exit_code == 2


def test_there_and_back() -> None:
    error = error_from(error_object(BadInput("What.", why="Why.", fix="Fix.", line=3)))
    assert (type(error), error.what, error.why, error.fix) == (BadInput, "What.", "Why.", "Fix.")
    assert error.data == {"line": 3}
