from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.real_machine import PYTHON

from crucible.agent.python.environment import EnvironmentBuilder
from crucible.agent.python.pythons import Pythons
from crucible.agent.runner.staging_context import RemovableLock, StagingAborted, StagingContext, StagingError
from crucible.wire.documents.desired import Environment

UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


class Talk:
    """The output of a build."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.work = StagingContext(self.said.append, self.lines.append, self.notes.append)


def builder(tmp_path: Path, talk: Talk, uv: str | None = UV, path: str | None = None) -> EnvironmentBuilder:
    host = {**os.environ, "PATH": path or os.path.dirname(PYTHON)}
    return EnvironmentBuilder(tmp_path / "envs", Pythons(host, uv), talk.work, host, uv)


def wheel(folder: Path, name: str = "demo") -> str:
    """Return a requirement line for a tiny package that needs no index."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{name}.py", "value = 42\n")
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
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
    with pytest.raises(StagingError, match=bad):
        builder(tmp_path, Talk()).choose(Environment(interpreter=bad), tmp_path, {})


def test_elsewhere_an_interpreter_that_was_only_found_is_replaced_by_the_machines_own(tmp_path: Path) -> None:
    remote = replace(builder(tmp_path, Talk()), elsewhere=True)
    found = Environment(interpreter="/no/such/python", origin="python3 on PATH")
    assert remote.choose(found, tmp_path, {}).python != "/no/such/python"
    assert remote.choose(replace(found, interpreter=PYTHON), tmp_path, {}).python == PYTHON, "it is here as well"
    with pytest.raises(StagingError, match="/no/such/python"):
        remote.choose(replace(found, origin="--python /no/such/python"), tmp_path, {})
    with pytest.raises(StagingError, match="/no/such/python"):
        builder(tmp_path, Talk()).choose(found, tmp_path, {})


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


MAKES = '[ "$1" != venv ] || { mkdir -p "$6/bin"; ln -s /bin/true "$6/bin/python"; }'
CONNECT = "error: Failed to fetch: https://index/simple/x/\n  cause: client error (Connect)"
NOT_FOUND = "error: No solution found\n  cause: Because x was not found in the package registry"


def failing_uv(tmp_path: Path, said: str) -> str:
    """Make a fake uv that fails with a message."""
    return fake_program(tmp_path / "uv", f"echo 'Using Python'; echo '{said}'; exit 1")


def test_pip_takes_over_when_uv_cannot_reach_the_index(tmp_path: Path) -> None:
    talk = Talk()
    wanted = Environment(requirements=(wheel(tmp_path),))
    chosen = builder(tmp_path, talk, uv=failing_uv(tmp_path, CONNECT)).choose(wanted, tmp_path, {})
    assert value_of(chosen.python) == "42"
    assert talk.notes == ["uv could not build the environment; trying pip"]
    assert "  cause: client error (Connect)" in talk.lines


def test_when_both_fail_the_word_of_uv_comes_first(tmp_path: Path) -> None:
    uv = failing_uv(tmp_path, CONNECT)
    wanted = Environment(requirements=(f"gone @ file://{tmp_path}/gone-1.0-py3-none-any.whl",))
    with pytest.raises(StagingError) as error:
        builder(tmp_path, Talk(), uv=uv).choose(wanted, tmp_path, {})
    said = str(error.value)
    assert said.startswith("the environment could not be built: error: Failed to fetch")
    assert said.index("client error") < said.index("Nor could pip: ERROR")
    assert "apt install" not in said


def test_what_pip_cannot_mend_is_said_once(tmp_path: Path) -> None:
    talk = Talk()
    with pytest.raises(StagingError) as error:
        builder(tmp_path, talk, uv=failing_uv(tmp_path, NOT_FOUND)).choose(
            Environment(requirements=("x",), python=">=3.9"), tmp_path, {}
        )
    assert str(error.value) == f"the environment could not be built: {NOT_FOUND}"
    assert talk.notes == []
    assert sum(line.startswith("$ ") for line in talk.lines) == 1


def test_uv_gets_the_interpreter_and_the_certificates_of_the_machine(tmp_path: Path) -> None:
    uv = fake_program(
        tmp_path / "uv",
        f'echo "$@ $UV_SYSTEM_CERTS $SSL_CERT_FILE" >> {tmp_path}/calls\n{MAKES}',
    )
    plain = builder(tmp_path, Talk(), uv=uv)
    env = {name: value for name, value in plain.host_env.items() if not name.startswith("SSL_")}
    told = replace(plain, host_env={**env, "PIP_CERT": "/some/ca.pem"})
    told.choose(Environment(requirements=("x",), python=">=3.9,<4"), tmp_path, {})
    venv_call = (tmp_path / "calls").read_text().splitlines()[0]
    assert f"--python {plain.pythons.default().path} " in venv_call
    assert venv_call.endswith(" 1 /some/ca.pem")


def test_uv_fetches_a_python_that_the_machine_has_not(tmp_path: Path) -> None:
    uv = failing_uv(tmp_path, "error: No interpreter found for Python >=3.99 (os error 111, timed out)")
    talk = Talk()
    for requirements in (("x",), ()):
        wanted = Environment(requirements=requirements, python=">=3.99")
        with pytest.raises(StagingError, match="could not be built: error: No interpreter"):
            builder(tmp_path, talk, uv=uv).choose(wanted, tmp_path, {})
    assert all("--python >=3.99 " in line for line in talk.lines if line.startswith("$ "))
    assert talk.notes == []


def test_without_uv_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    host = {"PATH": str(empty), "HOME": str(empty)}
    bare = EnvironmentBuilder(tmp_path / "envs", Pythons(host), Talk().work, host, None)
    with pytest.raises(StagingError, match=r"no Python >=3\.99 as python3 on its PATH; install uv"):
        bare.choose(Environment(requirements=("x",), python=">=3.99"), tmp_path, {})


def test_a_version_that_says_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="'newest' is not a Python version"):
        builder(tmp_path, Talk()).choose(Environment(python="newest"), tmp_path, {})


# What is kept


def keys(folder: Path) -> set[str]:
    return {path.name for path in (folder / "envs").iterdir()}


def test_the_key_does_not_depend_on_where_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = fake_program(tmp_path / "uv", MAKES)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for wanted in (">=3.9", ">=3.99"):
            builder(tmp_path / name, Talk(), uv=uv).choose(
                Environment(requirements=("x",), python=wanted), tmp_path, {}
            )
    assert keys(tmp_path / "one") == keys(tmp_path / "two")
    assert len(keys(tmp_path / "one")) == 2


def test_the_key_depends_on_what_chooses_packages(tmp_path: Path) -> None:
    uv = fake_program(tmp_path / "uv", MAKES)
    for name, value in (("PIP_INDEX_URL", "https://a"), ("PIP_INDEX_URL", "https://b"), ("PIP_TIMEOUT", "9")):
        plain = builder(tmp_path, Talk(), uv=uv)
        replace(plain, host_env={**plain.host_env, name: value}).choose(Environment(requirements=("x",)), tmp_path, {})
    builder(tmp_path, Talk(), uv=uv).choose(Environment(requirements=("x",)), tmp_path, {})
    assert len(keys(tmp_path)) == 3


def test_what_a_killed_build_left_goes_with_the_next_one(tmp_path: Path) -> None:
    envs = tmp_path / "envs"
    for name in ("dead", "dead.scratch", "whole/bin", "busy"):
        (envs / name).mkdir(parents=True)
    (envs / "whole/.complete").touch()
    (envs / "whole/bin/python").symlink_to("/bin/true")
    for name in ("dead", "whole"):
        (envs / f"{name}.lock").touch()
    held = RemovableLock.take(envs / "busy.lock")
    assert held is not None
    chosen = builder(tmp_path, Talk()).choose(Environment(requirements=(wheel(tmp_path),)), tmp_path, {})
    built = Path(chosen.python).parent.parent.name
    assert keys(tmp_path) == {built, "whole", "busy", "busy.lock"}
    held.remove()


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first = RemovableLock.take(path)
    assert first is not None
    assert RemovableLock.take(path) is None
    first.remove()
    assert not path.exists()
    again = RemovableLock.take(path)
    assert again is not None
    again.remove()


def test_a_failed_build_says_its_last_lines_and_leaves_nothing(tmp_path: Path) -> None:
    talk = Talk()
    wanted = Environment(requirements=(f"gone @ file://{tmp_path}/gone-1.0-py3-none-any.whl",))
    with pytest.raises(StagingError, match="gone"):
        builder(tmp_path, talk).choose(wanted, tmp_path, {})
    assert list((tmp_path / "envs").iterdir()) == []


def test_a_stop_ends_a_build(tmp_path: Path) -> None:
    slow = fake_program(tmp_path / "uv", "sleep 60")
    talk = Talk()
    threading.Timer(0.2, talk.work.aborted.set).start()
    with pytest.raises(StagingAborted):
        builder(tmp_path, talk, uv=slow).choose(Environment(requirements=("x",)), tmp_path, {})


def test_a_project_needs_its_file(tmp_path: Path) -> None:
    for project in ("absent", "../out"):
        with pytest.raises(StagingError, match="project"):
            builder(tmp_path, Talk()).choose(Environment(project=project), tmp_path, {})


def test_a_project_is_installed_from_a_copy(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "pyproject.toml").write_text("[project]\nname = 'demo'\nversion = '1'\n")
    # A stand-in for uv that leaves a file in the folder it is told to install.
    text = 'case "$1" in venv) mkdir -p "$6/bin"; ln -s /bin/true "$6/bin/python";; pip) touch "$5/built";; esac'
    fake = fake_program(tmp_path / "uv", text)
    chosen = builder(tmp_path, Talk(), uv=fake).choose(Environment(project="."), code, {}, "content-1")
    other = builder(tmp_path, Talk(), uv=fake).choose(Environment(project="."), code, {}, "content-2")
    assert chosen.python != other.python
    assert sorted(path.name for path in code.iterdir()) == ["pyproject.toml"]
