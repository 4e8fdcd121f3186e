from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.client.payload.conftest import Ask, Git, ask, folder, git, names

from crucible.client.payload import CodeSource, ModelOptions, Payload, load_code
from crucible.client.request.job_request import PartialSpec
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.requirements import Requirements
from crucible.client.request.submit_options import read_keywords, repository
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import DataInput, Kind, SourceKind
from crucible.core.routing.plan_request import Goal

__all__ = ["ask", "folder", "git"]


def read(folder: Path = Path("/"), **said: Any) -> tuple[CodeSource, PartialSpec, Goal]:
    """Return what these keywords mean; without code in them, of a job that runs some."""
    if not {"code", "path", "git", "function", "shell", "model"} & set(said):
        said = {"code": "print(1)", **said}
    return read_keywords(SubmitHost({"HOME": "/home/me"}, folder), **said)


def test_all_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x")
    _, fields, goal = read(
        tmp_path,
        requirements=Requirements(cpus=2, interruptible=True, checkpoint_frequency_minutes=5),
        preferences={"optimize_for": "speed"},
        places=["far", "local"],
        name="mine",
        project="vision",
        secrets={"KEY": "DEPLOY_KEY"},
        kind="benchmark",
        env={"A": 1, "HOME": None},
        data={"set": "data.csv"},
        tags=["a", "b"],
        retries=2,
        retry_wait_seconds=5,
        keep_checkpoints=4,
        seed=7,
        priority=2,
        max_wait_seconds=7200,
        outputs=["*.pt"],
        grace_seconds=3,
    )
    assert fields == {
        "backend": "far",
        "fallback": ("local",),
        "name": "mine",
        "project": "vision",
        "kind": Kind.BENCHMARK,
        "market": Market.SPOT,
        "spot_fallback": True,
        "resources": {"cpus": 2},
        "env": {"CHECKPOINT_FREQUENCY_MINUTES": "5", "A": "1", "HOME": "/home/me"},
        "secrets": {"KEY": "DEPLOY_KEY"},
        "data": (DataInput(name="set", source=str(tmp_path / "data.csv")),),
        "tags": ("a", "b"),
        "retries": {"user": 2, "wait_seconds": 5},
        "keep": {"latest": 4},
        "seed": 7,
        "priority": 2,
        "max_wait_seconds": 7200,
        "outputs": ("*.pt",),
        "grace_seconds": 3,
    }
    assert (goal.interruptible, goal.optimize) == (True, "speed")
    assert read(no_outputs=True)[1] == {"outputs": ()}
    assert read(no_outputs=False)[1] == {}
    assert read(secrets=["HF_TOKEN"])[1] == {"secrets": {"HF_TOKEN": "HF_TOKEN"}}


def test_spot_is_waited_for_unless_it_may_fall_back() -> None:
    allowed = Requirements(interruptible=True)
    assert read(market="spot")[1] == {"market": Market.SPOT}
    assert read(market="spot", spot_fallback=True)[1] == {"market": Market.SPOT, "spot_fallback": True}
    assert read(requirements=allowed, market="spot")[1] == {"market": Market.SPOT}
    assert read(requirements=allowed, market="on-demand")[1] == {"market": Market.ON_DEMAND}
    assert read(requirements=allowed, spot_fallback=False)[1] == {"market": Market.SPOT}
    with pytest.raises(BadInput, match="spot_fallback: needs the market spot, not on_demand"):
        read(market="on-demand", spot_fallback=True)


@pytest.mark.parametrize("most", [0, 1.5, None])
def test_what_it_may_cost_goes_with_the_job(most: float | None) -> None:
    assert read(requirements={"max_cost_usd": most})[1].get("max_cost_usd") == most


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"nmae": "x"}, "Did you mean 'name'"),
        ({"name": 3}, "name must be text"),
        ({"name": "a/b"}, "name must not contain slashes"),
        ({"kind": "trian"}, "Did you mean 'train'"),
        ({"env": ["A=1"]}, "env must be a mapping"),
        ({"env": {"A": object()}}, "env\\['A'\\] must be text"),
        ({"env": {"1A": "x"}}, "not the name of a variable"),
        ({"env": {"A=B": "x"}}, "env must have names without ="),
        ({"env": {"CRUCIBLE_HOME": "x"}}, "set by Crucible itself"),
        ({"data": {"a": "x\0"}}, "data must not contain a NUL"),
        ({"data": ["\ud800"]}, "half a character"),
        ({"secrets": 3}, "secrets must be a list of strings"),
        ({"secrets": {"KEY": "not a name"}}, "not the name of a secret"),
        ({"secrets": ["1KEY"]}, "not the name of a variable"),
        ({"project": "Big Team"}, "project must have 1 to 63 of a-z"),
        ({"retry_wait_seconds": -1}, "retry_wait_seconds must be at least 0"),
        ({"no_outputs": "yes"}, "must be True or False"),
        ({"outputs": ["*.pt"], "no_outputs": True}, "contradict"),
        ({"tags": 3}, "tags must be a list of strings"),
        ({"tags": [3]}, "tags must be a list of strings"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"retries": "many"}, "retries must be a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**40}, "seed must be less than"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"spot_fallback": "yes"}, "spot_fallback must be True or False"),
        ({"market": "spott"}, "Did you mean 'spot'"),
        ({"retries": True}, "retries must be a whole number"),
        ({"grace_seconds": float("nan")}, "grace_seconds must be a number"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1"),
        ({"grace_seconds": 10**9}, "at most"),
        ({"in_place": "yes"}, "in_place must be True or False"),
        ({"places": []}, "names nothing"),
        ({"places": ["a"], "preferences": {"allowed_backends": ["b"]}}, "contradict"),
        ({"requirements": {"gpus": -1}}, "gpus must be at least 0"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_sent(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(**said)


def test_an_argument_that_there_is_not_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        read(backend="local")


def test_what_is_wrong_with_inputs_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the shell has no variable NOSUCH"):
        read(env={"NOSUCH": None})
    with pytest.raises(BadInput, match=r"data nosuch\.csv does not exist"):
        read(tmp_path, data=["nosuch.csv"])


def a_function() -> int:
    return 1


def taken(like: CodeSource, **said: Any) -> Payload:
    """The payload of these arguments in the shell of a source."""
    source = read_keywords(like.host, **said)[0]
    return load_code(replace(source, scratch=like.scratch))


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
    found = [read(code=code)[0] for code in ("print(1)", Path("x.py"), a_function)]
    assert [(one.kind, one.target) for one in found] == [
        ("code", "print(1)"),
        ("path", "x.py"),
        ("function", a_function),
    ]


def test_code_and_its_arguments(ask: Ask) -> None:
    payload = taken(ask(), code="print(1)", args=["--epochs", 3])
    assert payload.command == ("{python}", "main.py", "--epochs", "3")
    assert payload.source.kind is SourceKind.CODE


def test_a_file_a_folder_and_a_command(ask: Ask, folder: Path) -> None:
    (folder / "train.py").write_text("print(1)\n")
    assert taken(ask(), path="train.py").source.kind is SourceKind.SCRIPT
    assert taken(ask(), path=folder).source.kind is SourceKind.DIRECTORY
    assert taken(ask(), shell="echo x").command == ("/bin/sh", "-c", "echo x")


def test_a_notebook_becomes_a_script_without_its_outputs(ask: Ask, folder: Path) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell("%matplotlib inline\nprint('ran')")  # type: ignore[no-untyped-call]
    cell["outputs"] = [nbformat.v4.new_output("stream", text="an old output")]  # type: ignore[no-untyped-call]
    notebook["cells"] = [cell]
    nbformat.write(notebook, folder / "study.ipynb")  # type: ignore[no-untyped-call]
    payload = taken(ask(), path="study.ipynb")
    assert payload.command == ("{python}", "study.py")
    assert names(payload) == ["study.py"]
    assert payload.source.kind is SourceKind.NOTEBOOK


@pytest.mark.parametrize("name", ["train.py", "study.ipynb", " job.yaml\n"])
def test_the_name_of_a_file_is_not_taken_for_code(name: str) -> None:
    with pytest.raises(BadInput, match="name of a file, not code") as raised:
        read(code=name)
    assert "path=" in raised.value.fix


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "nothing to run"),
        ({"code": "x", "path": "y"}, "one thing to run"),
        ({"code": 3}, "code must be text, not int"),
        ({"code": b"x"}, "code must be text, not bytes"),
        ({"code": "print('\ud800')"}, "half a character"),
        ({"code": "print(1)", "args": "--epochs"}, "args must be a list"),
        ({"code": "print(1)", "kwargs": {"a": 1}}, "kwargs are for functions"),
        ({"function": a_function, "kwargs": [1]}, "kwargs must be a table"),
    ],
)
def test_what_cannot_be_taken_up_is_told(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_keywords(SubmitHost({}, Path("/")), **said)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"path": 3}, "path must be text"),
        ({"path": "a\0.py"}, "NUL"),
        ({"git": "a\0"}, "NUL"),
        ({"path": "nosuch.py"}, "does not exist"),
        ({"path": "job.yaml"}, "is a job file"),
        ({"function": 3}, "must be a function"),
        ({"git": 3}, "git must be text"),
        ({"git": "nosuch"}, "is not a repository"),
        ({"git": " "}, "names no repository"),
        ({"git": "ext::sh -c id"}, "not a git address"),
        ({"git": "https://host/team/x@--upload-pack=touch"}, "not a branch, tag or commit"),
        ({"code": "   "}, "is empty"),
    ],
)
def test_what_cannot_be_read_is_told(said: dict[str, Any], words: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match=words):
        taken(ask(), **said)


def test_a_repository_on_this_computer_at_a_revision(repo: Path, ask: Ask, git: Git) -> None:
    payload = taken(ask(), git=f"{repo}@v1")
    assert (payload.source.kind, payload.source.commit) == (SourceKind.GIT, git("rev-parse", "v1"))


def test_without_a_revision_it_is_the_newest(repo: Path, ask: Ask, git: Git) -> None:
    assert taken(ask(), git=".").source.commit == git("rev-parse", "HEAD")


def test_a_folder_with_an_at_sign_and_spaces_in_its_name(tmp_path: Path, repo: Path, ask: Ask) -> None:
    odd = tmp_path / "my @work"
    repo.rename(odd)
    repo.mkdir()
    assert repository(f"{odd}@v1", tmp_path) == f"file://{tmp_path}/my%20%40work@v1"
    assert taken(ask(), git=str(odd), args=(), ref="v1").source.ref == "v1"


def test_addresses_pass_as_they_are() -> None:
    assert repository("https://example.org/team/x.git@main", Path("/")) == "https://example.org/team/x.git@main"
    assert repository("git@example.org:team/x.git", Path("/")) == "git@example.org:team/x.git"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"model": 3}, "model must be text"),
        ({"model": "tiny", "code": "print(1)"}, "shell and model exclude each other"),
        ({"model": "tiny", "args": ["--epochs"]}, "takes no args"),
        ({"model": "tiny", "config": [1]}, "config must be a table"),
        ({"model": "tiny", "plugin": 3}, "plugin must be text"),
        ({"model": "tiny", "callbacks": "a:B"}, "callbacks must be a list"),
        ({"path": "a.py", "config": {"epochs": 3}}, "config belongs to a model"),
        ({"path": "a.py", "inputs": [1]}, "inputs belongs to a model"),
    ],
)
def test_what_is_no_model_is_told(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(**said)


def test_a_model_as_it_was_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, model="tiny", config={"epochs": 3}, plugin=".", inputs=[1], callbacks=["a:B"])[0]
    assert (found.kind, found.target) == ("model", "tiny")
    assert found.model == ModelOptions(tmp_path, {"epochs": 3}, (), ".", [1], ("a:B",))
    assert read(code="print(1)")[0].model is None
