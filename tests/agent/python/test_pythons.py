from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest
from tests.agent.real_machine import PYTHON
from uv import find_uv_bin

from crucible.agent.python.pythons import BadPython, NoPython, Pythons, installed_packages, python_version


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fake_python(path: Path, version: str) -> str:
    """Make a program that answers like a Python of this version."""
    lines = (version, str(path), str(path.parent.parent), "linux-x86_64", "cpython")
    return program(path, "\n".join(f"echo {line}" for line in lines))


def test_the_default_is_a_python_of_the_path_that_is_not_ours(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    venv.create(ours, with_pip=False)
    env = {"PATH": f"{ours}/bin:{os.path.dirname(PYTHON)}"}
    assert Pythons(env).default().prefix == str(ours)
    avoiding = Pythons(env, own=str(ours))
    assert avoiding.default().prefix != str(ours)
    assert avoiding.named(f"{ours}/bin/python").path == f"{ours}/bin/python"


def test_a_version_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadPython, match=r"Python 3\.1 "):
        Pythons({"PATH": "/usr/bin:/bin"}).default("3.1")


def test_a_specifier_is_met_by_the_first_that_fits(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    fake_python(first / "python3", "3.8.18")
    fake_python(second / "python3", "3.11.7")
    fake_python(first / "python", "2.7.18")
    env = {"PATH": f"{first}:{tmp_path}/absent:{second}"}

    def found(wanted: str) -> str:
        return Pythons(env).default(wanted).version

    assert found(">=3.9") == "3.11.7"
    assert found("<3.9") == "3.8.18"
    assert found("==2.7.*") == "2.7.18"
    with pytest.raises(NoPython, match=r"no Python >=3\.12 as python3 on its PATH; install uv"):
        found(">=3.12")


def test_uv_is_asked_for_what_is_not_python3_on_the_path(tmp_path: Path) -> None:
    python3 = fake_python(tmp_path / "bin" / "python3", "3.8.18")
    elsewhere = fake_python(tmp_path / "elsewhere" / "python3.12", "3.12.1")
    asked = tmp_path / "asked"
    pythons = Pythons({"PATH": f"{tmp_path}/bin"}, uv=program(tmp_path / "uv", f"echo $@ >> {asked}; echo {elsewhere}"))
    assert pythons.default().path == python3
    assert pythons.default("3.8").path == python3
    assert not asked.exists()
    assert pythons.default(">=3.12,<4").path == elsewhere
    assert asked.read_text().endswith("--no-python-downloads >=3.12,<4\n")
    with pytest.raises(NoPython):
        pythons.default(">=3.13")


@pytest.mark.parametrize("uv", ["echo 'error: No interpreter found' >&2; exit 2", "echo /no/such/python", "exit 0"])
def test_a_uv_that_finds_none_leaves_none(tmp_path: Path, uv: str) -> None:
    with pytest.raises(NoPython):
        Pythons({"PATH": "/nowhere"}, uv=program(tmp_path / "uv", uv)).default(">=3.9")


def test_uv_finds_a_python_by_its_versions_name(tmp_path: Path) -> None:
    version = Pythons({"PATH": os.path.dirname(PYTHON)}).default().version
    (tmp_path / f"python{version.rpartition('.')[0]}").symlink_to(os.path.realpath(PYTHON))
    pythons = Pythons({"PATH": str(tmp_path), "HOME": str(tmp_path)}, uv=find_uv_bin())
    assert pythons.default(f"=={version}").version == version
    with pytest.raises(NoPython):
        pythons.default()


def test_the_implementation_is_known() -> None:
    assert Pythons({"PATH": os.path.dirname(PYTHON)}).default().implementation == "cpython"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'usage: tool'; echo 'more help' >&2; echo 'the last line' >&2; exit 2", "ended with code 2;"),
        (
            "echo 'error: libpython3.9.so: cannot open' >&2; exit 127",
            r"\(error: libpython3.9.so: cannot open\);",
        ),
        ('echo "cannot access $3" >&2; exit 2', "ended with code 2;"),
        ("for i in 1 2 3 4 5 6; do echo $i; done", "ended with code 0;"),
    ],
)
def test_a_program_that_is_no_python_is_said_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = program(tmp_path / "tool", text)
    with pytest.raises(BadPython, match=f"{path} does not run as a Python.*{said} choose another") as error:
        Pythons({"PATH": "/usr/bin:/bin"}).named(path)
    for unwanted in ("import sys", "last line", "\n"):
        assert unwanted not in str(error.value)


def test_a_shim_without_its_python_is_said(tmp_path: Path) -> None:
    path = program(tmp_path / "shims" / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    with pytest.raises(BadPython, match="shim of a version manager") as error:
        Pythons({"PATH": "/usr/bin:/bin"}).named(path)
    assert "\n" not in str(error.value)


def test_bin_ls_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(BadPython, match=r"^/bin/ls does not run as a Python: [^\n]* with --python$") as error:
        Pythons(dict(os.environ)).named("/bin/ls")
    assert "sys" not in str(error.value)


# What is installed


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make the folders of a virtual environment, whose Python is a link out of it."""
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("numpy-2.4.1", "torch-2.13.0+cpu", "Ruamel_Yaml-0.18", "pip-25.0", "half"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "numpy").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "bin" / "python"


def test_packages_are_pinned_without_a_builds_label(python: Path) -> None:
    assert installed_packages(str(python)) == ["numpy==2.4.1", "ruamel-yaml==0.18", "torch==2.13.0"]


def test_the_version_is_the_environments(python: Path) -> None:
    assert python_version(str(python)) == "3.12"


def test_a_python_without_an_environment_has_none(tmp_path: Path) -> None:
    assert installed_packages(str(tmp_path / "python")) == []
    assert python_version(str(tmp_path / "python")) is None


def test_this_very_environment() -> None:
    pins = installed_packages(sys.executable)
    assert any(pin.startswith("pytest==") for pin in pins)
    assert python_version(sys.executable) == f"3.{sys.version_info.minor}"
