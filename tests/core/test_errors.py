from __future__ import annotations

import inspect
import re

import pytest

from crucible.core import errors
from crucible.core.errors import BadInput, CrucibleError, UnknownName

CLASSES: list[type[CrucibleError]] = [
    item
    for item in vars(errors).values()
    if inspect.isclass(item) and issubclass(item, CrucibleError) and item.__module__ == errors.__name__
]


def shown_tree() -> dict[str, int]:
    """Each class of the docstring's tree with its depth there."""
    lines = re.findall(r"^([│├└─ ]*)(\w+)  +\S", errors.__doc__ or "", re.MULTILINE)
    return {name: len(branch) // 4 for branch, name in lines}


def test_the_docstring_shows_every_error_at_its_depth() -> None:
    assert shown_tree() == {item.__name__: len(item.__mro__) - len(CrucibleError.__mro__) for item in CLASSES}


@pytest.mark.parametrize("item", CLASSES, ids=lambda item: str(item.__name__))
def test_the_docstring_names_the_exit_code(item: type[CrucibleError]) -> None:
    line = re.search(rf"[─ ]{item.__name__}  .*exit code (\d)", errors.__doc__ or "")
    if line:
        assert item.exit_code == int(line[1])


def test_there_are_no_errors_outside_the_tree() -> None:
    found = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, Exception)]
    assert found == CLASSES


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [item.code for item in CLASSES]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("item", CLASSES, ids=lambda item: str(item.__name__))
def test_exit_codes_and_statuses_are_those_of_failures(item: type[CrucibleError]) -> None:
    assert 1 <= item.exit_code <= 9
    assert 400 <= item.http_status <= 599


def test_an_error_tells_what_why_and_the_fix_and_carries_data() -> None:
    error = BadInput("It broke.", why="It was thin.", fix="Take a thicker one.", size=3)
    assert str(error) == "It broke. It was thin. Take a thicker one."
    assert (error.what, error.why, error.fix, error.data) == (
        "It broke.", "It was thin.", "Take a thicker one.", {"size": 3}
    )  # fmt: skip
    assert str(BadInput("It broke.")) == "It broke."


@pytest.mark.parametrize(
    ("typed", "meant"), [("locl", "local"), ("LOCAL", "local"), ("slrum", "Slurm"), ("lokal", "local")]
)
def test_an_unknown_name_comes_with_the_nearest_known_one(typed: str, meant: str) -> None:
    error = UnknownName("backend", typed, ["local", "Slurm", "kubernetes"], fix="List them.")
    assert error.what == f"There is no backend {typed!r}."
    assert error.fix == f"Did you mean {meant!r}? List them."
    assert error.data == {"name": typed, "meant": meant}


def test_without_anything_near_the_known_names_are_listed() -> None:
    assert UnknownName("backend", "xyz", ["local", "aws"]).fix == "Known: aws, local."
    assert UnknownName("backend", "xyz", []).fix == "Known: none."
    assert UnknownName("backend", "xyz", ["local"]).meant is None
