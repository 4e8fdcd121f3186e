from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crucible.agent.packages import installed, version_of


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment as far as folders go, whose Python is a link out of it."""
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("numpy-2.4.1", "torch-2.13.0+cpu", "Ruamel_Yaml-0.18", "pip-25.0", "half"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "numpy").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "bin" / "python"


def test_packages_are_pinned_without_a_builds_label(python: Path) -> None:
    assert installed(str(python)) == ["numpy==2.4.1", "ruamel-yaml==0.18", "torch==2.13.0"]


def test_the_version_is_the_environments(python: Path) -> None:
    assert version_of(str(python)) == "3.12"


def test_a_python_without_an_environment_has_none(tmp_path: Path) -> None:
    assert installed(str(tmp_path / "python")) == []
    assert version_of(str(tmp_path / "python")) is None


def test_this_very_environment() -> None:
    pins = installed(sys.executable)
    assert any(pin.startswith("pytest==") for pin in pins)
    assert version_of(sys.executable) == f"3.{sys.version_info.minor}"
