from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path

import pytest
from tests.agent.machines import PYTHON

from crucible.agent.environment import Builder
from crucible.agent.pythons import BadPython, Pythons
from crucible.agent.stagework import Abandoned, StageError, StageWork
from crucible.wire.desired import Environment

UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


class Talk:
    """What a build said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.work = StageWork(self.said.append, self.lines.append, self.notes.append)


def builder(tmp_path: Path, talk: Talk, uv: str | None = UV, path: str | None = None) -> Builder:
    host = {**os.environ, "PATH": path or os.path.dirname(PYTHON)}
    pythons = Pythons(tmp_path / "cache" / "pythons.json", host)
    return Builder(tmp_path / "envs", pythons, talk.work, host, uv)


def wheel(folder: Path, name: str = "demo") -> str:
    """A tiny package as a requirement line that needs no index."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{name}.py", "value = 42\n")
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(
            f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return f"{name} @ {path.as_uri()}"


def fake_program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def value_of(python: str) -> str:
    code = "import demo; print(demo.value)"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30).stdout.strip()


def test_a_named_interpreter_is_used_as_it_is(tmp_path: Path) -> None:
    chosen = builder(tmp_path, Talk()).choose(Environment(interpreter=PYTHON, origin="asked"), tmp_path, {})
    assert chosen.python == PYTHON
    assert "asked" in chosen.about


@pytest.mark.parametrize("bad", ["/no/such/python", "python3", "/etc/passwd", "/bin/false"])
def test_a_bad_interpreter_is_said(tmp_path: Path, bad: str) -> None:
    with pytest.raises(StageError, match=bad):
        builder(tmp_path, Talk()).choose(Environment(interpreter=bad), tmp_path, {})


def test_the_default_is_a_python_of_the_path_that_is_not_ours(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    venv.create(ours, with_pip=False)
    env = {"PATH": f"{ours}/bin:{os.path.dirname(PYTHON)}"}
    memory = tmp_path / "pythons.json"
    assert Pythons(memory, env).default().prefix == str(ours)
    avoiding = Pythons(memory, env, avoid=[str(ours)])
    assert avoiding.default().prefix != str(ours)
    assert avoiding.named(f"{ours}/bin/python").path == f"{ours}/bin/python"


def test_a_version_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadPython, match=r"Python 3\.1 "):
        Pythons(tmp_path / "p.json", {"PATH": "/usr/bin:/bin"}).default("3.1")


def test_an_environment_is_built_once(tmp_path: Path) -> None:
    wanted = Environment(requirements=(wheel(tmp_path),))
    talk = Talk()
    first = builder(tmp_path, talk).choose(wanted, tmp_path, {})
    assert value_of(first.python) == "42"
    assert talk.said == ["building the environment"]
    assert any("demo" in line for line in talk.lines)
    again = Talk()
    second = builder(tmp_path, again).choose(wanted, tmp_path, {})
    assert second.python == first.python
    assert again.lines == []


def test_two_jobs_build_it_together_once(tmp_path: Path) -> None:
    wanted = Environment(requirements=(wheel(tmp_path),))
    talks = [Talk(), Talk()]
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda talk=talk: found.append(builder(tmp_path, talk).choose(wanted, tmp_path, {}).python)
        )
        for talk in talks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert [bool(talk.lines) for talk in talks].count(True) == 1


def test_a_build_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    wanted = Environment(requirements=(wheel(tmp_path),))
    first = builder(tmp_path, Talk()).choose(wanted, tmp_path, {})
    home = Path(first.python).parent.parent
    (home / ".complete").unlink()
    shutil.rmtree(home / "lib")
    assert value_of(builder(tmp_path, Talk()).choose(wanted, tmp_path, {}).python) == "42"


def test_pip_takes_over_when_uv_fails(tmp_path: Path) -> None:
    broken = fake_program(tmp_path / "uv", "echo no network; exit 1")
    talk = Talk()
    wanted = Environment(requirements=(wheel(tmp_path),))
    chosen = builder(tmp_path, talk, uv=broken).choose(wanted, tmp_path, {})
    assert value_of(chosen.python) == "42"
    assert talk.notes == ["uv could not build the environment; trying pip"]
    assert "no network" in talk.lines


def test_a_failed_build_says_its_last_lines_and_leaves_nothing(tmp_path: Path) -> None:
    talk = Talk()
    wanted = Environment(requirements=(f"gone @ file://{tmp_path}/gone-1.0-py3-none-any.whl",))
    with pytest.raises(StageError, match="gone"):
        builder(tmp_path, talk).choose(wanted, tmp_path, {})
    assert [path for path in (tmp_path / "envs").iterdir() if path.is_dir()] == []


def test_a_stop_ends_a_build(tmp_path: Path) -> None:
    slow = fake_program(tmp_path / "uv", "sleep 60")
    talk = Talk()
    threading.Timer(0.2, talk.work.abandoned.set).start()
    with pytest.raises(Abandoned):
        builder(tmp_path, talk, uv=slow).choose(Environment(requirements=("x",)), tmp_path, {})


def test_a_project_needs_its_file(tmp_path: Path) -> None:
    for project in ("absent", "../out"):
        with pytest.raises(StageError, match="project"):
            builder(tmp_path, Talk()).choose(Environment(project=project), tmp_path, {})


def test_a_project_is_installed_from_a_copy(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "pyproject.toml").write_text("[project]\nname = 'demo'\nversion = '1'\n")
    # A stand-in for uv that leaves a file in the folder it is told to install.
    text = (
        'case "$1" in venv) mkdir -p "$6/bin"; ln -s /bin/true "$6/bin/python";; pip) touch "$5/built";; esac'
    )
    fake = fake_program(tmp_path / "uv", text)
    chosen = builder(tmp_path, Talk(), uv=fake).choose(Environment(project="."), code, {}, "content-1")
    other = builder(tmp_path, Talk(), uv=fake).choose(Environment(project="."), code, {}, "content-2")
    assert chosen.python != other.python
    assert sorted(path.name for path in code.iterdir()) == ["pyproject.toml"]
