from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.plugin_packages import make_python

from crucible.client.request.declarations import Code
from crucible.client.request.pythons import (
    NO_PACKAGES,
    EnvironmentChoice,
    Interpreter,
    NoInterpreter,
    SubmitHost,
    absolute_python,
    choose_environment,
    find_python,
)
from crucible.core.errors import BadInput
from crucible.wire.python_versions import version_matches

OWN = "/opt/crucible"


def host(
    folder: Path = Path("/project"), programs: tuple[str, ...] = (), base: str = "/usr", **environ: str
) -> SubmitHost:
    """A shell in which just these programs exist, with Crucible installed in /opt/crucible."""
    return SubmitHost(
        environ={"PATH": "/opt/crucible/bin:/usr/bin", **environ},
        folder=folder,
        own_prefix=OWN,
        own_base=base,
        is_program=lambda path: path in programs,
        realpath=lambda path: path.replace("/link", OWN),
        run_uv=FakeUv(programs),
    )


@dataclass(frozen=True)
class FakeUv:
    """Knows Pythons of 3.11.4, but for those whose path names another; shims say what pyenv's say."""

    programs: tuple[str, ...]

    def __call__(self, request: str, environ: Mapping[str, str], folder: Path) -> Interpreter:
        if request.startswith("/"):
            return self._ask(request)
        found = (self._ask(path) for path in self.programs if str(Path(path).parent) in environ["PATH"].split(":"))
        fitting = next((python for python in found if version_matches(python.version, request)), None)
        if fitting is None:
            raise NoInterpreter(f"No interpreter found for Python {request} in search path")
        return fitting

    def _ask(self, path: str) -> Interpreter:
        if "shims/broken" in path:
            raise NoInterpreter("pyenv: broken: command not found")
        version = f"3.{path.rpartition('3.')[2]}.1" if "3." in path else "3.11.4"
        return Interpreter("/pyenv/versions/real/bin/python" if "/shims/" in path else path, version)


def choose(host: SubmitHost, named: str | None = None, code: Code | None = None) -> EnvironmentChoice:
    return choose_environment(named, code or Code(), host)


def test_the_shells_virtual_environment_comes_first() -> None:
    shell = host(
        programs=("/venv/bin/python", "/conda/bin/python", "/usr/bin/python3"),
        VIRTUAL_ENV="/venv",
        CONDA_PREFIX="/conda",
    )
    found = choose(shell).environment
    assert found.interpreter == "/venv/bin/python"
    assert "VIRTUAL_ENV" in found.origin


def test_then_conda_then_the_folders_own_then_the_path() -> None:
    shell = host(programs=("/conda/bin/python",), CONDA_PREFIX="/conda")
    assert choose(shell).environment.interpreter == "/conda/bin/python"
    shell = host(programs=("/project/.venv/bin/python", "/usr/bin/python3"))
    assert choose(shell).environment.origin == "./.venv"
    shell = host(programs=("/usr/bin/python3",))
    assert choose(shell).environment.interpreter == "/usr/bin/python3"


def test_crucibles_own_environment_is_passed_over_and_that_is_said() -> None:
    shell = host(programs=("/link/bin/python", "/opt/crucible/bin/python3", "/usr/bin/python3"), VIRTUAL_ENV="/link")
    found = choose(shell)
    assert found.environment.interpreter == "/usr/bin/python3"
    assert "Crucible's own" in found.notes[0]


def test_with_no_other_python_on_the_path_the_base_of_our_environment_serves() -> None:
    shell = host(programs=("/opt/crucible/bin/python3", "/base/bin/python3"), base="/base")
    assert choose(shell).environment.interpreter == "/base/bin/python3"


def test_a_python_shared_with_crucible_serves_when_there_is_no_other() -> None:
    shell = host(programs=("/opt/crucible/bin/python3",), base=OWN)
    found = choose(shell).environment
    assert found.interpreter == "/opt/crucible/bin/python3"
    assert "too" in found.origin


def test_no_python_at_all_is_bad_input() -> None:
    with pytest.raises(BadInput, match="No Python"):
        choose(host())


def test_a_virtual_environment_that_is_gone_is_passed_over() -> None:
    shell = host(programs=("/usr/bin/python3",), VIRTUAL_ENV="/gone")
    assert choose(shell).environment.interpreter == "/usr/bin/python3"


def test_python_may_be_named_by_path_or_environment_folder() -> None:
    shell = host(programs=("/project/env/bin/python", "/x/python3.12"), VIRTUAL_ENV="/venv")
    assert choose(shell, "/x/python3.12").environment.interpreter == "/x/python3.12"
    assert choose(shell, "./env").environment.interpreter == "/project/env/bin/python"


def test_an_environment_here_may_be_named_without_a_slash(tmp_path: Path) -> None:
    make_python(tmp_path / ".venv")
    (tmp_path / "python3").mkdir()
    shell = host(tmp_path, programs=(f"{tmp_path}/.venv/bin/python", "/usr/bin/python3"))
    assert choose(shell, ".venv").environment.interpreter == f"{tmp_path}/.venv/bin/python"
    assert absolute_python("python3", tmp_path) == "python3", "a folder of that name is no environment"


def test_a_named_python_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInput, match="--python nosuch"):
        choose(host(), "nosuch")
    with pytest.raises(BadInput, match="--python /no/such"):
        choose(host(), "/no/such")


BLOCK = """# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "numpy>=2",
#   "rich",
# ]
# ///
print(1)
"""


def test_a_script_block_wins_over_everything_but_the_flag(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch")
    shell = host(programs=("/venv/bin/python", "/x/python"), VIRTUAL_ENV="/venv")
    code = Code(tmp_path, "train.py", BLOCK)
    found = choose(shell, code=code).environment
    assert found.requirements == ("numpy>=2", "rich")
    assert found.python == ">=3.11"
    assert "train.py" in found.origin
    assert choose(shell, "/x/python", code).environment.requirements == ()


def needs(wanted: str) -> Code:
    return Code(Path("/nowhere"), "train.py", f'# /// script\n# requires-python = "{wanted}"\n# ///\nprint(1)\n')


def test_a_block_may_ask_for_a_python_alone() -> None:
    shell = host(programs=("/venv/bin/python", "/usr/bin/python3", "/usr/bin/python3.13"), VIRTUAL_ENV="/venv")
    for wanted in (">=3.11", "something else"):
        assert choose(shell, code=needs(wanted)).environment.interpreter == "/venv/bin/python"
    found = choose(shell, code=needs(">=3.12"))
    assert found.environment.interpreter == "/usr/bin/python3.13"
    assert found.environment.python == ">=3.12"
    assert "Python 3.13.1 as the script block in train.py requires" in found.environment.origin


@pytest.mark.parametrize("written", ["version = 3.12.2\n", "uv = 0.9\nversion_info = 3.12.2.final.0\n"])
def test_the_folders_own_environment_says_its_version_and_is_not_run(tmp_path: Path, written: str) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(written)
    shell = SubmitHost({"PATH": "/nowhere"}, tmp_path)
    found = choose(shell, code=needs(">=3.12")).environment
    assert (found.interpreter, "Python 3.12.2" in found.origin) == (str(python), True)
    assert choose(shell, code=needs(">=3.99")).environment.interpreter is None
    assert not (tmp_path / "ran").exists()


def test_a_python_that_is_not_here_is_built_and_that_is_said() -> None:
    found = choose(host(programs=("/usr/bin/python3",)), code=needs(">=3.14"))
    assert (found.environment.python, found.environment.requirements) == (">=3.14", (NO_PACKAGES,))
    assert found.environment.interpreter is None
    assert "No Python >=3.14 was found here" in found.notes[0]


def test_a_named_python_that_the_block_does_not_want_is_noted() -> None:
    shell = host(programs=("/x/python3.10",))
    found = choose(shell, "/x/python3.10", needs(">=3.12"))
    assert found.environment.interpreter == "/x/python3.10"
    assert found.notes == ("--python /x/python3.10 is Python 3.10.1, while train.py requires >=3.12.",)
    assert choose(shell, "/x/python3.10", needs(">=3.9")).notes == ()


def test_an_empty_block_changes_nothing() -> None:
    code = Code(text="# /// script\n# dependencies = []\n# ///\n")
    found = choose(host(programs=("/usr/bin/python3",)), code=code).environment
    assert found.interpreter == "/usr/bin/python3"


def test_a_shim_stands_for_the_python_behind_it() -> None:
    shell = host(programs=("/pyenv/shims/python", "/pyenv/shims/broken"))
    found = choose(shell, "/pyenv/shims/python").environment
    assert (found.interpreter, found.origin) == ("/pyenv/versions/real/bin/python", "--python /pyenv/shims/python")
    with pytest.raises(BadInput, match="does not run as a Python") as caught:
        choose(shell, "/pyenv/shims/broken")
    assert "command not found" in caught.value.why
    assert "pyenv local" in caught.value.fix


def test_uv_finds_a_python_by_its_path_and_by_a_range(tmp_path: Path) -> None:
    found = find_python(sys.executable, os.environ, tmp_path)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert os.path.realpath(found.path) == os.path.realpath(sys.executable)
    base = {**os.environ, "PATH": f"{sys.base_prefix}/bin", "VIRTUAL_ENV": sys.prefix, "UV_PYTHON": "3.1"}
    ranged = find_python(f"=={found.version}", base, tmp_path)
    assert os.path.realpath(ranged.path) == os.path.realpath(sys.executable)
    with pytest.raises(NoInterpreter, match=r"No interpreter found for Python >=3\.99"):
        find_python(">=3.99", base, tmp_path)


@pytest.mark.parametrize("script", ["#!/bin/sh\necho no such version >&2\nexit 127\n", "#!/bin/sh\necho hello\n"])
def test_what_is_no_python_is_told_in_its_own_words(tmp_path: Path, script: str) -> None:
    path = tmp_path / "python"
    path.write_text(script)
    path.chmod(0o755)
    with pytest.raises(NoInterpreter, match=r"no such version|hello"):
        find_python(str(path), {}, tmp_path)
    with pytest.raises(NoInterpreter):
        find_python(str(tmp_path / "nosuch"), {}, tmp_path)


def test_a_broken_pyproject_is_noted_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    found = choose(host(programs=("/usr/bin/python3",)), code=Code(tmp_path, "a.py", "x"))
    assert found.environment.interpreter == "/usr/bin/python3"
    assert f"{tmp_path / 'pyproject.toml'} is not valid TOML, so its dependencies are unknown" in found.notes[0]
