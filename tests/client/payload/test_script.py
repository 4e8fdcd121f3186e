from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import make_payload
from crucible.core.errors import BadInput
from crucible.core.job.spec import SourceKind


def test_a_script_becomes_itself_and_its_arguments(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)\n")
    payload = make_payload("train.py", ask(arguments=("--epochs", "3")))
    assert payload.command == ("{python}", "train.py", "--epochs", "3")
    assert names(payload) == ["train.py"]
    assert payload.source.kind is SourceKind.SCRIPT
    assert payload.environment.interpreter == "/usr/bin/python3"
    assert (payload.notes, payload.left_out, payload.workdir) == ((), (), None)


def test_local_modules_come_along_with_what_they_import(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("import json, helper\nfrom models.net import Net\nimport_module('late')\n")
    (folder / "helper.py").write_text("import deeper.inside.leaf\n")
    (folder / "late.py").write_text("")
    (folder / "unused.py").write_text("")
    (folder / "models").mkdir()
    (folder / "models" / "__init__.py").write_text("from . import net")
    (folder / "models" / "net.py").write_text("import used_by_net\n")
    (folder / "models" / "vocabulary.json").write_text("{}")
    (folder / "models" / "__pycache__").mkdir()
    (folder / "models" / "__pycache__" / "x.pyc").write_text("")
    (folder / "used_by_net.py").write_text("import helper\n")
    (folder / "deeper" / "inside").mkdir(parents=True)
    (folder / "deeper" / "inside" / "leaf.py").write_text("")
    (folder / "deeper" / "big.bin").write_text("")
    assert names(make_payload("train.py", ask(home=folder))) == [
        "deeper/inside/leaf.py",
        "helper.py",
        "late.py",
        "models/__init__.py",
        "models/net.py",
        "models/vocabulary.json",
        "train.py",
        "used_by_net.py",
    ]


def test_include_adds_files_and_folders(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)")
    (folder / "configs" / "deep").mkdir(parents=True)
    (folder / "configs" / "a.yaml").write_text("")
    (folder / "configs" / "deep" / "b.yaml").write_text("")
    assert names(make_payload("train.py", ask(home=folder, include=("configs",)))) == [
        "configs/a.yaml",
        "configs/deep/b.yaml",
        "train.py",
    ]
    only = make_payload("train.py", ask(home=folder, include=("configs/*.yaml",)))
    assert names(only) == ["configs/a.yaml", "train.py"]
    both = make_payload("train.py", ask(home=folder, include=("configs", "configs/a.yaml", "configs/*", "train.py")))
    assert names(both) == ["configs/a.yaml", "configs/deep/b.yaml", "train.py"]


@pytest.mark.parametrize("pattern", ["nosuch", "../*", "/etc/*"])
def test_an_include_that_matches_nothing_here_is_bad_input(folder: Path, ask: Ask, pattern: str) -> None:
    (folder / "train.py").write_text("print(1)")
    (folder.parent / "outside").write_text("")
    with pytest.raises(BadInput, match="--include"):
        make_payload("train.py", ask(include=(pattern,)))


def test_a_script_elsewhere_brings_the_modules_of_its_own_folder(folder: Path, ask: Ask) -> None:
    (folder / "examples").mkdir()
    (folder / "examples" / "train.py").write_text("import helper")
    (folder / "examples" / "helper.py").write_text("")
    (folder / "helper.py").write_text("another one")
    payload = make_payload("examples/train.py", ask(home=folder))
    assert (payload.command, payload.workdir) == (("{python}", "train.py"), None)
    assert names(payload) == ["helper.py", "train.py"]


def test_in_place_sends_nothing_and_runs_in_the_scripts_folder(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)")
    payload = make_payload("train.py", ask(in_place=True))
    assert payload.entries is None
    assert payload.in_place == str(folder)


def test_a_missing_file_is_told_with_the_nearest_name(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)")
    with pytest.raises(BadInput) as caught:
        make_payload("trian.py", ask())
    assert "'train.py'" in caught.value.fix


@pytest.mark.parametrize("content", [b"", b" \n\t\n"])
def test_an_empty_file_is_refused(folder: Path, ask: Ask, content: bytes) -> None:
    (folder / "train.py").write_bytes(content)
    with pytest.raises(BadInput, match="empty"):
        make_payload("train.py", ask())


def test_code_that_is_not_utf8_is_refused_with_the_offset(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_bytes(b"print('caf\xe9')\n")
    with pytest.raises(BadInput) as caught:
        make_payload("train.py", ask())
    assert "offset 10" in caught.value.why
    assert caught.value.data["offset"] == 10


def test_code_that_declares_another_encoding_is_taken(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('caf\xe9')\n")
    assert names(make_payload("train.py", ask())) == ["train.py"]


def test_binary_files_are_refused(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_bytes(b"print(1)\x00")
    with pytest.raises(BadInput, match="not source code"):
        make_payload("train.py", ask())


def test_a_syntax_error_is_only_a_note(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)\nprint(\n")
    payload = make_payload("train.py", ask())
    assert "line 2" in payload.notes[0]


def test_a_bundle_over_the_limit_names_the_biggest_files(folder: Path, ask: Ask) -> None:
    (folder / "train.py").write_text("print(1)")
    (folder / "weights.bin").write_bytes(bytes(5000))
    with pytest.raises(BadInput) as caught:
        make_payload("train.py", ask(include=("weights.bin",), limit=1000))
    assert "weights.bin" in caught.value.why
    assert ".crucibleignore" in caught.value.fix


def test_a_link_out_of_the_folder_is_refused(folder: Path, ask: Ask) -> None:
    (folder.parent / "outside.py").write_text("x = 1")
    (folder / "helper.py").symlink_to(folder.parent / "outside.py")
    (folder / "train.py").write_text("import helper")
    with pytest.raises(BadInput, match=r"helper\.py is a link"):
        make_payload("train.py", ask())


def test_a_link_inside_the_folder_comes_with_its_target(folder: Path, ask: Ask) -> None:
    (folder / "shared").mkdir()
    (folder / "shared" / "helper_v2.py").write_text("x = 1")
    (folder / "helper.py").symlink_to("shared/helper_v2.py")
    (folder / "train.py").write_text("import helper")
    assert names(make_payload("train.py", ask(home=folder))) == ["helper.py", "shared/helper_v2.py", "train.py"]


def test_what_is_uncommitted_is_recorded(folder: Path, ask: Ask, git: Git) -> None:
    (folder / "train.py").write_text("print(1)\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = make_payload("train.py", ask()).source
    assert (clean.commit, clean.dirty, clean.diff) == (git("rev-parse", "HEAD"), False, None)
    (folder / "train.py").write_text("print(2)\n")
    (folder / "other.py").write_text("")
    dirty = make_payload("train.py", ask()).source
    assert dirty.dirty
    assert "+print(2)" in (dirty.diff or "")


@pytest.mark.parametrize("name", ["data.csv", "run.sh"])
def test_a_file_of_another_kind_is_refused_with_the_way_to_run_it(folder: Path, ask: Ask, name: str) -> None:
    (folder / name).write_text("x")
    with pytest.raises(BadInput) as caught:
        make_payload(name, ask())
    assert "--shell" in caught.value.fix


def test_nothing_at_all_is_bad_input(ask: Ask) -> None:
    with pytest.raises(BadInput, match="nothing to run"):
        make_payload(" ", ask())
