from __future__ import annotations

from pathlib import Path

from crucible.cli.output.hints import find_hints
from crucible.client.payload import Payload
from crucible.core.job.spec import EnvironmentSpec, Source, SourceKind


def script(path: Path) -> Payload:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("import x")
    return Payload(("{python}", path.name), EnvironmentSpec(), Source(kind=SourceKind.SCRIPT, path=str(path)))


TRACEBACK = ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'mylib.parts'"]


def test_a_missing_package_is_to_be_declared(tmp_path: Path) -> None:
    (found,) = find_hints(TRACEBACK, script(tmp_path / "train.py"), tmp_path)
    assert "no module mylib" in found
    assert "requirements.txt" in found
    assert find_hints(TRACEBACK) == (found,)


def test_a_module_of_the_same_repository_is_to_be_sent(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "mylib").mkdir()
    (found,) = find_hints(TRACEBACK, script(tmp_path / "scripts" / "train.py"), tmp_path)
    assert "crucible run . --entry scripts/train.py --env PYTHONPATH=." in found


def test_the_search_ends_where_the_repository_does(tmp_path: Path) -> None:
    (tmp_path / "mylib").mkdir()
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (found,) = find_hints(TRACEBACK, script(tmp_path / "repository" / "scripts" / "train.py"), tmp_path)
    assert "requirements.txt" in found


def test_a_job_has_no_standard_input() -> None:
    (found,) = find_hints(["    name = input()", "EOFError: EOF when reading a line"])
    assert "no standard input" in found


def test_other_ends_suggest_nothing() -> None:
    assert find_hints(["ValueError: No module named 'x'", "  ModuleNotFoundError in words"]) == ()
