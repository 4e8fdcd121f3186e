from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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


def missing(name: str) -> list[str]:
    return ["Traceback (most recent call last):", f"FileNotFoundError: [Errno 2] No such file or directory: {name!r}"]


def sent(path: Path, *arguments: str, workdir: str | None = None) -> Payload:
    command = ("{python}", *arguments)
    return replace(script(path), command=command, workdir=workdir, entries=())


@pytest.mark.parametrize(
    ("standing", "workdir", "name", "says"),
    [
        ("", None, "data/a.bin", "crucible run scripts/train.py --include data/a.bin -- --epochs 3"),
        ("", None, "/home/me/machines/m/attempts/a-0/work/data/a.bin", "--include data/a.bin"),
        ("scripts", "scripts", "../data/a.bin", "crucible run train.py --include ../data/a.bin -- --epochs 3"),
        ("scripts", "scripts", "local.bin", "crucible run train.py --include local.bin -- --epochs 3"),
        ("", None, "{top}/outside.bin", "--data {top}/outside.bin"),
    ],
)
def test_a_file_that_is_here_is_to_be_sent(
    tmp_path: Path, standing: str, workdir: str | None, name: str, says: str
) -> None:
    root = tmp_path / "project"
    for file in (root / "data" / "a.bin", root / "scripts" / "local.bin", tmp_path / "outside.bin"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    word = "train.py" if workdir else "scripts/train.py"
    payload = sent(root / "scripts" / "train.py", word, "--epochs", "3", workdir=workdir)
    (found,) = find_hints(missing(name.format(top=tmp_path)), payload, root / standing)
    assert says.format(top=tmp_path) in found


def test_a_file_that_is_nowhere_suggests_nothing(tmp_path: Path) -> None:
    assert find_hints(missing("nosuch.bin"), sent(tmp_path / "train.py", "train.py"), tmp_path) == ()
    in_place = replace(script(tmp_path / "train.py"), in_place=str(tmp_path))
    assert find_hints(missing("train.py"), in_place, tmp_path) == ()
    (tmp_path / ".netrc").write_text("x")
    payload = sent(tmp_path / "project" / "train.py", "train.py")
    assert find_hints(missing(str(tmp_path / ".netrc")), payload, tmp_path) == ()


def test_a_file_of_a_shell_command_is_to_be_sent(tmp_path: Path) -> None:
    (tmp_path / "my data.csv").write_text("x")
    shell = Payload(("/bin/sh", "-c", "python x.py"), EnvironmentSpec(), Source(kind=SourceKind.SHELL))
    (found,) = find_hints(missing("my data.csv"), shell, tmp_path)
    assert "crucible run --shell 'python x.py' --include 'my data.csv'" in found


def test_a_job_has_no_standard_input() -> None:
    (found,) = find_hints(["    name = input()", "EOFError: EOF when reading a line"])
    assert "no standard input" in found


def test_other_ends_suggest_nothing() -> None:
    assert find_hints(["ValueError: No module named 'x'", "  ModuleNotFoundError in words"]) == ()
