from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import make_payload
from crucible.core.errors import BadInput
from crucible.core.job.spec import MAX_DIFF, SourceKind


def write(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print(1)\n")


def test_a_directory_is_sent_whole_and_begins_at_its_main(folder: Path, ask: Ask) -> None:
    write(folder, "main.py", "train.py", "lib/a.py", "data.json")
    payload = make_payload(".", ask(arguments=("x",)))
    assert payload.command == ("{python}", "main.py", "x")
    assert names(payload) == ["data.json", "lib/a.py", "main.py", "train.py"]
    assert payload.source.kind is SourceKind.DIRECTORY


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        (("train.py", "util.py"), "train.py"),
        (("__main__.py", "util.py"), "__main__.py"),
        (("only.py",), "only.py"),
    ],
)
def test_the_entry_is_found(folder: Path, ask: Ask, files: tuple[str, ...], entry: str) -> None:
    write(folder, *files)
    assert make_payload(".", ask()).command[1] == entry


def test_the_entry_may_be_named(folder: Path, ask: Ask) -> None:
    write(folder, "main.py", "src/go.py")
    assert make_payload(".", ask(entry="src/go.py")).command[1] == "src/go.py"


def test_a_directory_without_an_entry_lists_candidates(folder: Path, ask: Ask) -> None:
    write(folder, "a.py", "b.py")
    with pytest.raises(BadInput) as caught:
        make_payload(".", ask())
    assert "a.py, b.py" in caught.value.why
    assert "--entry" in caught.value.fix


def test_an_empty_directory_says_that_there_is_no_python(folder: Path, ask: Ask) -> None:
    with pytest.raises(BadInput, match="no Python file"):
        make_payload(".", ask())


@pytest.mark.parametrize("entry", ["nosuch.py", "../x.py", "/etc/passwd", "lib"])
def test_a_bad_entry_is_refused(folder: Path, ask: Ask, entry: str) -> None:
    write(folder, "main.py", "lib/a.py")
    with pytest.raises(BadInput):
        make_payload(".", ask(entry=entry))


def test_in_a_work_tree_git_says_what_is_sent(folder: Path, ask: Ask, git: Git) -> None:
    write(folder, "main.py", "new.py", "ignored/big.bin", "gone.py")
    (folder / ".gitignore").write_text("ignored/\n")
    git("init", "-q")
    git("add", "main.py", "gone.py", ".gitignore")
    git("commit", "-qm", "first")
    (folder / "gone.py").unlink()
    payload = make_payload(".", ask())
    assert names(payload) == [".gitignore", "main.py", "new.py"]
    assert payload.source.commit == git("rev-parse", "HEAD")
    assert payload.source.dirty
    assert "gone.py" in (payload.source.diff or "")


def test_long_changes_are_cut(folder: Path, ask: Ask, git: Git) -> None:
    write(folder, "main.py")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (folder / "main.py").write_text(f"# {'x' * 597}\n" * 1000)
    diff = make_payload(".", ask()).source.diff
    assert diff is not None
    assert len(diff) == MAX_DIFF
    assert "cut here" in diff[-100:]


def test_the_ignore_file_counts(folder: Path, ask: Ask) -> None:
    write(folder, "main.py", "data/big.bin")
    (folder / ".crucibleignore").write_text("data/\n")
    assert names(make_payload(".", ask())) == [".crucibleignore", "main.py"]


def test_an_ignored_entry_is_told(folder: Path, ask: Ask) -> None:
    write(folder, "main.py")
    (folder / ".crucibleignore").write_text("*.py\n")
    with pytest.raises(BadInput, match="is ignored by"):
        make_payload(".", ask())


def test_a_link_out_of_the_directory_is_refused(folder: Path, ask: Ask) -> None:
    write(folder, "main.py")
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="out is a link"):
        make_payload(".", ask())


def test_requirements_of_the_directory_make_the_environment(folder: Path, ask: Ask) -> None:
    write(folder, "main.py")
    (folder / "requirements.txt").write_text("numpy\n")
    assert make_payload(".", ask()).environment.requirements == ("numpy",)


def test_the_folder_is_named_in_words(folder: Path, ask: Ask) -> None:
    write(folder, "main.py")
    with pytest.raises(BadInput) as caught:
        make_payload(".", ask(entry="nope.py"))
    assert caught.value.what == f"There is no nope.py in {folder}."
    assert caught.value.fix == "It has main.py."


def test_pipes_and_sockets_are_left_out_and_that_is_said(folder: Path, ask: Ask) -> None:
    write(folder, "main.py", "lib/a.py", ".venv/bin/x.py")
    os.mkfifo(folder / "lib" / "feed")
    os.mkfifo(folder / ".venv" / "hidden")
    payload = make_payload(".", ask())
    assert names(payload) == ["lib/a.py", "main.py"]
    assert payload.notes == ("lib/feed is left out: pipes, sockets and devices cannot be sent.",)
    assert make_payload(".", ask(in_place=True)).notes == ()
