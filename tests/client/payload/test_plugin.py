from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.plugin_packages import COUNTER, install, make_python

from crucible.client.payload import CodeSource, Payload
from crucible.client.payload.plugin import find_model, from_installed, from_source
from crucible.client.request.pythons import SubmitHost
from crucible.core.errors import BadInput
from crucible.core.job.models import ModelOrder

ME = ("-c", "user.name=me", "-c", "user.email=me@example.org")
ORDER = ModelOrder("counter", "train", {"epochs": 2})


@pytest.fixture
def request_(tmp_path: Path) -> CodeSource:
    environ = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": str(tmp_path / "venv")}
    return CodeSource(SubmitHost(environ, tmp_path))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_python(tmp_path / "venv")


def taken(request: CodeSource) -> Payload:
    plugin, choice = find_model("counter", "train", request)
    return from_installed(ORDER, plugin, choice, request)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def names(payload: Payload) -> list[str]:
    assert payload.entries is not None
    return [entry.name for entry in payload.entries]


def test_the_package_travels_whole_and_nothing_beside_it(request_: CodeSource, site: Path) -> None:
    package = install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    install(site, "other", COUNTER, {})
    (package / "vocabulary.txt").write_text("words")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "old.pyc").touch()
    payload = taken(request_)
    assert names(payload) == ["counting/__init__.py", "counting/vocabulary.txt"]
    assert payload.environment.origin == "the shell's VIRTUAL_ENV"
    assert payload.source.path == str(package)
    git(request_.folder, "init", "-q")
    git(request_.folder, *ME, "commit", "-qm", "first", "--allow-empty")
    assert taken(request_).source.commit is None


def test_of_a_package_in_a_work_tree_the_commit_is_recorded(request_: CodeSource, site: Path, tmp_path: Path) -> None:
    package = install(tmp_path / "work", "counting", COUNTER, {"counter": "counting:Counter"})
    (site / "editable.pth").write_text(f"{tmp_path / 'work'}\n")
    for command in (("init", "-q"), ("add", "."), (*ME, "commit", "-qm", "first")):
        git(tmp_path / "work", *command)
    assert not taken(request_).source.dirty
    (package / "__init__.py").write_text(COUNTER + "# more\n")
    source = taken(request_).source
    assert source.commit is not None
    assert source.dirty
    assert "# more" in (source.diff or "")


def test_a_module_of_one_file_travels_alone(request_: CodeSource, site: Path) -> None:
    install(site, "counting", "", {"counter": "alone:Counter"})
    (site / "alone.py").write_text(COUNTER)
    assert names(taken(request_)) == ["alone.py"]


def test_what_is_not_one_folder_runs_where_it_is_installed(request_: CodeSource, site: Path) -> None:
    install(site, "counting", "", {"counter": "spread.inner:Counter"})
    (site / "spread").mkdir()
    (site / "spread" / "inner.py").write_text(COUNTER)
    payload = taken(request_)
    assert payload.entries is None
    assert payload.notes == ("The package of counter is not one folder, so the job runs it where it is installed.",)


def test_a_package_that_is_too_large_is_refused(request_: CodeSource, site: Path) -> None:
    package = install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    (package / "weights.bin").write_bytes(b"x" * 5000)
    with pytest.raises(BadInput, match=r"at most 3\.906 KiB may be sent"):
        taken(CodeSource(request_.host, limit=4000))


def test_the_command_says_all(request_: CodeSource) -> None:
    order = ModelOrder("m", "infer", {"a": 1}, inputs=[1, "é"], callbacks=("a:B", "c:D"))
    assert order.command == (
        "{python}",
        "-m",
        "crucible.inside.plugin",
        "--model",
        "m",
        "--method",
        "infer",
        "--config",
        '{"a": 1}',
        "--inputs",
        '[1, "\\u00e9"]',
        "--callback",
        "a:B",
        "--callback",
        "c:D",
    )


@pytest.mark.parametrize("named", ["my-models", "my-models==1.2", "my_models [x] >= 1", "m @ https://host/m.whl"])
def test_requirements_are_told_from_folders(request_: CodeSource, named: str) -> None:
    assert from_source(ORDER, named, request_).environment.requirements == (named,)


@pytest.mark.parametrize("named", ["./models", "../models", "models/dist", "/no/models", ""])
def test_a_path_that_is_not_there_is_no_requirement(request_: CodeSource, named: str) -> None:
    with pytest.raises(BadInput):
        from_source(ORDER, named, request_)


def test_a_project_that_says_its_models_later_is_believed(request_: CodeSource, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndynamic = ["entry-points"]\n')
    payload = from_source(ORDER, ".", request_)
    assert payload.environment.project == "."
    assert "pyproject.toml" in names(payload)
