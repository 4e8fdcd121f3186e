"""A script brings the project that it belongs to."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import make_payload
from crucible.client.payload.project import find_project
from crucible.core.errors import BadInput

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        write_file(folder, f"{name}.py", text)


def write_file(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def clone(folder: Path, git: Git) -> Path:
    """A clone with a script, a package, ignored data and files that are new."""
    write_file(folder, "scripts/train.py", "print(1)")
    write_file(folder, "package/__init__.py", "")
    write_file(folder, "config/small.yaml")
    write_file(folder, ".gitignore", "data/\n*.log\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    write_file(folder, "data/big.bin")
    write_file(folder, "run.log")
    write_file(folder, "new.txt")
    return folder


CLONE = [".gitignore", "config/small.yaml", "new.txt", "package/__init__.py", "scripts/train.py"]


def test_the_work_tree_is_sent_without_what_git_ignores(clone: Path, ask: Ask) -> None:
    payload = make_payload("scripts/train.py", ask())
    assert names(payload) == CLONE
    assert payload.sent == f"the git work tree {clone}"
    assert payload.left_out == ()


@pytest.mark.parametrize(
    ("standing", "target", "command", "workdir"),
    [
        ("", "scripts/train.py", "scripts/train.py", None),
        ("scripts", "train.py", "train.py", "scripts"),
        ("config", "../scripts/train.py", "../scripts/train.py", "config"),
        ("..", "project/scripts/train.py", "train.py", "scripts"),
    ],
)
def test_it_starts_where_the_user_stands_else_beside_the_script(
    clone: Path, ask: Ask, standing: str, target: str, command: str, workdir: str | None
) -> None:
    payload = make_payload(target, ask(standing=Path(os.path.normpath(clone / standing)), arguments=("-v",)))
    assert payload.command == ("{python}", command, "-v")
    assert payload.workdir == workdir
    assert names(payload) == CLONE


def test_submodules_come_as_checked_out_without_what_they_ignore(
    clone: Path, git: Git, tmp_path: Path, ask: Ask
) -> None:
    module = tmp_path / "module"
    write_file(module, "net.py", "old")
    write_file(module, ".gitignore", "*.bin\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=module, check=True)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "third/module")
    write_file(clone, "third/module/net.py", "changed here")
    write_file(clone, "third/module/weights.bin")
    payload = make_payload("scripts/train.py", ask())
    assert names(payload) == sorted([*CLONE, ".gitmodules", "third/module/.gitignore", "third/module/net.py"])


def test_an_ignored_script_and_ignored_modules_come_too(clone: Path, ask: Ask) -> None:
    write_file(clone, "data/first.py", "import helper")
    write_file(clone, "data/helper.py")
    write_file(clone, "data/other.py")
    assert names(make_payload("data/first.py", ask())) == sorted([*CLONE, "data/first.py", "data/helper.py"])


def test_an_ignored_module_of_a_package_comes_too(clone: Path, ask: Ask) -> None:
    write_file(clone, ".gitignore", "data/\n*.log\n*.bin\nversion.py\n")
    write_file(clone, "scripts/lib/__init__.py", "")
    write_file(clone, "scripts/lib/version.py", "")
    write_file(clone, "scripts/lib/cache.bin", "")
    write_file(clone, "scripts/train.py", "import lib")
    assert names(make_payload("scripts/train.py", ask())) == sorted(
        [*CLONE, "scripts/lib/__init__.py", "scripts/lib/version.py"]
    )


def test_crucibleignore_leaves_out_more(clone: Path, ask: Ask) -> None:
    write_file(clone, ".crucibleignore", "config/\n")
    assert "config/small.yaml" not in names(make_payload("scripts/train.py", ask()))
    with pytest.raises(BadInput, match="never sent"):
        make_payload("scripts/train.py", ask(include=("config/small.yaml",)))


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "deep/id_rsa", ".netrc", ".aws/config", ".ssh/known_hosts", "kaggle.json", "deploy"]
)
def test_an_untracked_secret_is_listed_and_sent_only_when_named(clone: Path, ask: Ask, name: str) -> None:
    write_file(clone, name, KEY if name == "deploy" else "TOKEN=1")
    payload = make_payload("scripts/train.py", ask())
    assert names(payload) == CLONE
    assert payload.left_out == (f"{name} is not sent: it looks like a secret. --include {name} sends it.",)
    everything = make_payload("scripts/train.py", ask(include=("*", ".")))
    assert name not in names(everything)
    assert payload.left_out[0] in everything.left_out
    named = make_payload("scripts/train.py", ask(include=(name,)))
    assert names(named) == sorted([*CLONE, name])
    assert named.left_out == ()


@pytest.mark.parametrize("kind", ["service", "pem"])
def test_a_cloud_key_is_known_by_its_content(clone: Path, ask: Ask, kind: str) -> None:
    name, text = {"service": ("gcp.json", '{"private_key": "x"}'), "pem": ("x.pem", KEY)}[kind]
    write_file(clone, name, text)
    write_file(clone, "public.pem", "-----BEGIN CERTIFICATE-----\n")
    write_file(clone, "plain.json", "{}")
    payload = make_payload("scripts/train.py", ask())
    assert names(payload) == sorted([*CLONE, "plain.json", "public.pem"])


def test_a_secret_that_git_tracks_is_part_of_the_project(clone: Path, ask: Ask, git: Git) -> None:
    write_file(clone, ".env.example")
    git("add", ".env.example")
    assert ".env.example" in names(make_payload("scripts/train.py", ask()))


def test_a_link_out_of_the_project_is_left_out(clone: Path, ask: Ask, tmp_path: Path) -> None:
    write_file(tmp_path, "outside/file")
    (clone / "linked").symlink_to(tmp_path / "outside")
    (clone / "inner").symlink_to("config")
    payload = make_payload("scripts/train.py", ask())
    assert names(payload) == sorted([*CLONE, "inner"])
    assert f"linked is not sent: it is a link to {tmp_path / 'outside'}, outside the project." in payload.left_out


def test_a_tree_over_the_limit_sends_the_script_and_its_imports_and_says_so(clone: Path, ask: Ask) -> None:
    write_file(clone, "weights.bin", "x" * 5000)
    write_file(clone, "scripts/train.py", "import helper")
    write_file(clone, "scripts/helper.py", "")
    payload = make_payload("scripts/train.py", ask(limit=2000))
    assert names(payload) == ["scripts/helper.py", "scripts/train.py"]
    assert (payload.command, payload.workdir) == (("{python}", "scripts/train.py"), None)
    assert "not sent as a whole" in payload.left_out[0]


def test_virtual_environments_and_the_state_of_crucible_are_no_part_of_it(clone: Path, ask: Ask) -> None:
    write_file(clone, "my-env/pyvenv.cfg")
    write_file(clone, "my-env/lib/module.py")
    write_file(clone, "state/control.db")
    source = ask()
    environ = {**source.host.environ, "CRUCIBLE_HOME": str(clone / "state")}
    payload = make_payload("scripts/train.py", replace(source, host=replace(source.host, environ=environ)))
    assert names(payload) == CLONE


def test_a_small_folder_is_sent_as_a_whole(folder: Path, ask: Ask) -> None:
    write(folder, train="print(1)")
    write_file(folder, "data/table.csv")
    write_file(folder, ".venv/lib.py")
    write_file(folder, ".env")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(os.path.relpath(folder / "socket"))
        payload = make_payload("train.py", ask())
    assert names(payload) == ["data/table.csv", "train.py"]
    assert payload.sent == f"the folder {folder}"
    assert len(payload.left_out) == 2


def test_a_marker_above_makes_it_the_project(folder: Path, ask: Ask) -> None:
    write_file(folder, "requirements.txt", "numpy\n")
    write_file(folder, "scripts/train.py", "print(1)")
    payload = make_payload("train.py", ask(standing=folder / "scripts"))
    assert names(payload) == ["requirements.txt", "scripts/train.py"]
    assert payload.workdir == "scripts"
    assert payload.environment.requirements == ("numpy",)


def test_a_large_folder_is_not_sent_as_a_whole(folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.client.payload.project.SMALL_FILES", 3)
    write(folder, train="print(1)", one="", two="", three="")
    assert names(make_payload("train.py", ask())) == ["train.py"]


def test_a_home_folder_is_no_project_even_if_git_has_it(folder: Path, ask: Ask, git: Git) -> None:
    write(folder, train="import helper", helper="", other="")
    git("init", "-q")
    git("add", ".")
    assert names(make_payload("train.py", ask(home=folder))) == ["helper.py", "train.py"]
    write_file(folder, "inner/train.py", "print(1)")
    write_file(folder, "inner/data.csv", "print(1)")
    payload = make_payload("inner/train.py", ask(home=folder))
    assert names(payload) == ["data.csv", "train.py"]
    assert payload.workdir is None


@pytest.mark.parametrize("name", ["/", "/tmp", "/var/tmp", "/home/somebody"])
def test_folders_that_are_shared_are_no_projects(name: str) -> None:
    assert find_project(Path(name), {"HOME": "/home/me"}, 1000) is None


def test_a_work_tree_that_settings_place_elsewhere_is_not_followed(folder: Path, tmp_path: Path, git: Git) -> None:
    inner = folder / "inner"
    write_file(inner, "train.py")
    write_file(folder, "other.txt")
    subprocess.run(["git", "init", "-q", str(inner)], check=True)
    subprocess.run(["git", "config", "core.worktree", str(folder)], cwd=inner, check=True)
    found = find_project(inner, {"HOME": str(tmp_path)}, 10**6)
    assert found is not None
    assert (found.kind, found.root, found.files) == ("folder", inner, ("train.py",))


def test_the_same_tree_gives_the_same_entries(clone: Path, ask: Ask) -> None:
    one, two = (make_payload("scripts/train.py", ask()) for _ in range(2))
    assert one.entries == two.entries
