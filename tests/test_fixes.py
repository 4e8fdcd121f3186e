"""An error says what to do: whoever raises one for people gives its fix."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible.core import errors

SOURCE = Path(__file__).parents[1] / "src" / "crucible"
ROOMS = ("backends", "catalog", "cli", "client", "control", "core", "integrations", "server", "storage")
KINDS = frozenset(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.CrucibleError) and kind is not errors.UnknownName
)
NOT_FOR_PEOPLE = {
    "backends/local/backend.py": "a launch call that we did not make",
    "backends/rehearsal/backend.py": "a launch call that we did not make",
    "backends/ssh/backend.py": "a launch call that we did not make",
    "client/request/ranking.py": "parts of a sentence, joined into the error that has the fix",
    "control/upkeep/retention.py": "kept beside what could not be removed",
}


def without_fix(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS):
            continue
        if not any(word.arg in ("fix", None) for word in call.keywords):
            yield f"{path.relative_to(SOURCE)}:{call.lineno} {call.func.id}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_error_has_a_fix(room: str) -> None:
    files = [path for path in (SOURCE / room).rglob("*.py") if str(path.relative_to(SOURCE)) not in NOT_FOR_PEOPLE]
    assert files
    assert [found for path in files for found in without_fix(path)] == []


def test_the_exceptions_are_still_some() -> None:
    for name in NOT_FOR_PEOPLE:
        assert list(without_fix(SOURCE / name)), f"{name} needs no exception any more"
