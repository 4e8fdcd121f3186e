from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.payload.conftest import Ask, Git, ask, folder, git, names

from crucible.client.modeljobs import ModelAsk
from crucible.client.taking import Taken, repository
from crucible.core.errors import BadInput
from crucible.core.spec import SourceKind

__all__ = ["ask", "folder", "git"]


def a_function() -> int:
    return 1


@pytest.fixture
def repo(folder: Path, git: Git) -> Path:
    git("init", "-q")
    (folder / "main.py").write_text("print('one')\n")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    (folder / "main.py").write_text("print('two')\n")
    git("commit", "-qam", "two")
    return folder


def test_code_is_text_a_path_or_a_function() -> None:
    assert Taken(code="print(1)").checked().code == "print(1)"
    assert Taken(code=Path("x.py")).checked() == Taken(path=Path("x.py"))
    assert Taken(code=a_function).checked() == Taken(function=a_function)


def test_code_and_its_arguments(ask: Ask) -> None:
    payload = Taken(code="print(1)", args=["--epochs", 3]).checked().payload(ask())
    assert payload.command == ("{python}", "main.py", "--epochs", "3")
    assert payload.source.kind is SourceKind.CODE


def test_a_file_a_folder_and_a_command(ask: Ask, folder: Path) -> None:
    (folder / "train.py").write_text("print(1)\n")
    assert Taken(path="train.py").payload(ask()).source.kind is SourceKind.SCRIPT
    assert Taken(path=folder).payload(ask()).source.kind is SourceKind.DIRECTORY
    assert Taken(shell="echo x").payload(ask()).command == ("/bin/sh", "-c", "echo x")


def test_a_notebook_becomes_a_script_without_its_outputs(ask: Ask, folder: Path) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell("%matplotlib inline\nprint('ran')")  # type: ignore[no-untyped-call]
    cell["outputs"] = [nbformat.v4.new_output("stream", text="an old output")]  # type: ignore[no-untyped-call]
    notebook["cells"] = [cell]
    nbformat.write(notebook, folder / "study.ipynb")  # type: ignore[no-untyped-call]
    payload = Taken(path="study.ipynb").payload(ask())
    assert payload.command == ("{python}", "study.py")
    assert names(payload) == ["study.py"]
    assert payload.source.kind is SourceKind.NOTEBOOK


@pytest.mark.parametrize("name", ["train.py", "study.ipynb", " job.yaml\n"])
def test_the_name_of_a_file_is_not_taken_for_code(name: str) -> None:
    with pytest.raises(BadInput, match="name of a file, not code") as raised:
        Taken(code=name).checked()
    assert "path=" in raised.value.fix


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "nothing to run"),
        ({"code": "x", "path": "y"}, "one thing"),
        ({"code": 3}, "code is a text, not int"),
        ({"code": b"x"}, "code is a text, not bytes"),
        ({"code": "print('\ud800')"}, "half a character"),
        ({"code": "print(1)", "args": "--epochs"}, "args is a list"),
        ({"code": "print(1)", "kwargs": {"a": 1}}, "kwargs are for functions"),
        ({"function": a_function, "kwargs": [1]}, "kwargs is a table"),
    ],
)
def test_what_cannot_be_taken_up_is_told(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Taken(**said).checked()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"path": 3}, "path is a text"),
        ({"path": "a\0.py"}, "NUL"),
        ({"git": "a\0"}, "NUL"),
        ({"path": "nosuch.py"}, "does not exist"),
        ({"path": "job.yaml"}, "is a job file"),
        ({"function": 3}, "no function"),
        ({"git": 3}, "git is a text"),
        ({"git": "nosuch"}, "is no repository"),
        ({"git": " "}, "names no repository"),
        ({"git": "ext::sh -c id"}, "no git address"),
        ({"git": "https://host/team/x@--upload-pack=touch"}, "no branch, tag or commit"),
        ({"code": "   "}, "is empty"),
    ],
)
def test_what_cannot_be_read_is_told(said: dict[str, Any], words: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match=words):
        Taken(**said).payload(ask())


def test_a_repository_on_this_computer_at_a_revision(repo: Path, ask: Ask, git: Git) -> None:
    payload = Taken(git=f"{repo}@v1").payload(ask())
    assert (payload.source.kind, payload.source.commit) == (SourceKind.GIT, git("rev-parse", "v1"))


def test_without_a_revision_it_is_the_newest(repo: Path, ask: Ask, git: Git) -> None:
    assert Taken(git=".").payload(ask()).source.commit == git("rev-parse", "HEAD")


def test_a_folder_with_an_at_sign_and_spaces_in_its_name(tmp_path: Path, repo: Path, ask: Ask) -> None:
    odd = tmp_path / "my @work"
    repo.rename(odd)
    repo.mkdir()
    assert repository(f"{odd}@v1", ask()) == f"file://{tmp_path}/my%20%40work@v1"
    assert Taken(git=str(odd), args=()).payload(ask(ref="v1")).source.ref == "v1"


def test_addresses_pass_as_they_are(ask: Ask) -> None:
    assert repository("https://example.org/team/x.git@main", ask()) == "https://example.org/team/x.git@main"
    assert repository("git@example.org:team/x.git", ask()) == "git@example.org:team/x.git"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"model": 3}, "model is a text"),
        ({"model": "tiny", "code": "print(1)"}, "shell and model exclude each other"),
        ({"model": "tiny", "args": ["--epochs"]}, "takes no args"),
        ({"model": "tiny", "config": [1]}, "config is a table"),
        ({"model": "tiny", "plugin": 3}, "plugin is a text"),
        ({"model": "tiny", "callbacks": "a:B"}, "callbacks is a list"),
        ({"path": "a.py", "config": {"epochs": 3}}, "config belongs to a model"),
        ({"path": "a.py", "inputs": [1]}, "inputs belongs to a model"),
    ],
)
def test_what_is_no_model_is_told(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Taken(**said).checked()


def test_a_model_as_it_was_asked_for(tmp_path: Path) -> None:
    taken = Taken(model="tiny", config={"epochs": 3}, plugin=".", inputs=[1], callbacks=["a:B"]).checked()
    asked = ModelAsk("tiny", tmp_path, {"epochs": 3}, (), ".", [1], ("a:B",))
    assert taken.model_ask(tmp_path) == asked
    assert Taken(code="print(1)").model_ask(tmp_path) is None
