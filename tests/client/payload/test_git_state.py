"""Reading a folder runs nothing that the folder names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git

from crucible.client.payload import make_payload
from crucible.client.payload.git_state import git_state, list_files

HOOKS = ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction", "pre-auto-gc")
FILTERS = ("one", "two", "näme with blanks.and.dots", "three")


class Trap:
    """Programs that write down that they ran, and settings that name them."""

    def __init__(self, root: Path, git: Git) -> None:
        self.log = root / "ran"
        self.program = root / "trap.sh"
        self.program.write_text(f'#!/bin/sh\necho "$1" >> {self.log}\ncase $1 in filter*|text*) cat ;; esac\n')
        self.program.chmod(0o755)
        self._git = git

    def plant(self, where: Path, key: str, name: str) -> None:
        subprocess.run(["git", "config", key, f"{self.program} {name}"], cwd=where, check=True)

    @property
    def ran(self) -> set[str]:
        return set(self.log.read_text().split()) if self.log.exists() else set()

    def hooks(self, git_folder: Path) -> None:
        for name in HOOKS:
            hook = git_folder / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(f"#!/bin/sh\necho hook >> {self.log}\n")
            hook.chmod(0o755)


def commit(folder: Path, git: Git, *, attributes: str = "") -> None:
    (folder / "main.py").write_text("print('one')\n")
    (folder / ".gitattributes").write_text(attributes)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")


@pytest.mark.parametrize(
    "name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"]
)
def test_it_is_the_repository_of_the_folder_whatever_the_environment_names(
    folder: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A git hook that runs our command has these variables of its own repository."""
    commit(folder, git)
    (folder / "main.py").write_text("print('two')\n")
    (tmp_path / "other").mkdir()
    expected = git_state(folder), list_files(folder)
    assert expected[0].diff
    monkeypatch.setenv(name, str(tmp_path / "other"))
    assert (git_state(folder), list_files(folder)) == expected


@pytest.fixture
def trap(tmp_path: Path, git: Git) -> Trap:
    return Trap(tmp_path, git)


@pytest.fixture
def planted(folder: Path, git: Git, trap: Trap, tmp_path: Path) -> Path:
    """A changed repository, with a submodule, each of whose settings names programs."""
    module = tmp_path / "module"
    module.mkdir()
    (module / "a.txt").write_text("a\n")
    (module / ".gitattributes").write_text("* filter=one\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=module, check=True)
    commit(folder, git)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "module")
    for name in ("one.txt", "two.txt", "three.txt", "four.txt", "text.txt"):
        (folder / name).write_text("first\n")
    git("add", ".")
    git("commit", "-qm", "two")
    (folder / ".gitattributes").write_text(
        'one.txt filter=one\ntwo.txt filter=two\nthree.txt filter="three"\ntext.txt diff=words\nfour.txt diff=tool\n'
    )
    for name in ("one.txt", "two.txt", "three.txt", "four.txt", "text.txt", "main.py"):
        (folder / name).write_text("second\n")
    inner = folder / "module"
    (inner / "a.txt").write_text("changed\n")
    for where in (folder, inner):
        for name in FILTERS:
            trap.plant(where, f"filter.{name}.clean", "filter-clean")
            trap.plant(where, f"filter.{name}.smudge", "filter-smudge")
        trap.plant(where, "filter.two.process", "filter-process")
        subprocess.run(["git", "config", "filter.three.required", "true"], cwd=where, check=True)
        trap.plant(where, "core.fsmonitor", "fsmonitor")
        trap.plant(where, "diff.external", "diff-external")
        trap.plant(where, "diff.words.textconv", "textconv")
        trap.plant(where, "diff.tool.command", "diff-tool")
        for key in ("core.pager", "pager.status", "pager.diff", "core.editor", "core.askPass", "credential.helper"):
            trap.plant(where, key, "pager-or-helper")
        for key in ("core.sshCommand", "core.gitProxy", "core.alternateRefsCommand", "alias.status", "alias.ls-files"):
            trap.plant(where, key, "remote")
        for key, value in (
            ("submodule.recurse", "true"),
            ("diff.submodule", "diff"),
            ("status.submoduleSummary", "true"),
        ):
            subprocess.run(["git", "config", key, value], cwd=where, check=True)
    trap.hooks(folder / ".git")
    trap.hooks(folder / ".git" / "modules" / "module")
    return folder


def test_nothing_that_a_folder_names_is_run(planted: Path, ask: Ask, trap: Trap) -> None:
    state = git_state(planted)
    payload = make_payload(".", ask())
    script = make_payload("main.py", ask())
    assert "module/a.txt" in {entry.name for entry in script.entries or ()}
    assert "main.py" in (list_files(planted) or ())
    assert trap.ran == set()
    assert state.dirty
    assert "+second" in (state.diff or "")
    assert payload.source.diff == state.diff


@pytest.mark.parametrize("command", [("status",), ("diff", "HEAD"), ("diff", "--no-ext-diff", "HEAD")])
def test_the_traps_would_have_sprung(planted: Path, git: Git, trap: Trap, command: tuple[str, ...]) -> None:
    subprocess.run(["git", *command], cwd=planted, capture_output=True, check=False)
    found = {"status": {"filter-clean", "fsmonitor"}, "diff": {"fsmonitor"}}[command[0]]
    assert found <= trap.ran


def test_a_filter_that_cannot_be_turned_off_leaves_changes_out(folder: Path, git: Git, trap: Trap) -> None:
    commit(folder, git)
    (folder / ".git" / "config").open("a").write(f'[filter "a=b"]\n\tclean = {trap.program} filter-clean\n')
    (folder / ".gitattributes").write_text("* filter=a=b\n")
    (folder / "main.py").write_text("print('two')\n")
    state = git_state(folder)
    assert (state.commit, state.diff, trap.ran) == (git("rev-parse", "HEAD"), None, set())


def test_a_filter_whose_name_is_no_text_is_turned_off(folder: Path, git: Git, trap: Trap) -> None:
    commit(folder, git, attributes="")
    with (folder / ".git" / "config").open("ab") as config:
        config.write(b'[filter "\xff"]\n\tclean = %s filter-clean\n' % bytes(trap.program))
    (folder / ".gitattributes").write_bytes(b"* filter=\xff\n")
    (folder / "main.py").write_text("print('two')\n")
    assert "two" in (git_state(folder).diff or "")
    assert trap.ran == set()


def test_missing_objects_are_not_fetched(folder: Path, git: Git, trap: Trap) -> None:
    """In a partial clone git would fetch them, with the program that the remote's settings name."""
    commit(folder, git)
    blob = git("rev-parse", "HEAD:main.py")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(folder)),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", f"{trap.program} remote"),
        ("protocol.allow", "always"),
        ("protocol.ext.allow", "always"),
    ):
        git("config", key, value)
    (folder / "main.py").write_text("print('two')\n")
    state = git_state(folder)
    assert (bool(state.commit), state.dirty, trap.ran) == (True, True, set())
    subprocess.run(["git", "diff", "HEAD"], cwd=folder, capture_output=True, check=False)
    assert trap.ran == {"remote"}, "the trap would have sprung"


def test_files_stored_by_a_filter_are_unchanged_until_they_are_written(folder: Path, git: Git, trap: Trap) -> None:
    commit(folder, git, attributes="*.bin filter=upper\n")
    git("config", "filter.upper.clean", "tr a-z A-Z")
    (folder / "big.bin").write_text("weights\n")
    os.utime(folder / "big.bin", (1, 1))  # before the index, else git has to read it to be sure
    git("add", ".")
    git("commit", "-qm", "two")
    assert git("show", "HEAD:big.bin") == "WEIGHTS"
    assert git_state(folder).dirty is False
