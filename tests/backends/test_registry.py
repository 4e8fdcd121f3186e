from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crucible.backends import BackendSettings, get_backend, names
from crucible.backends.base import NotInstalled
from crucible.backends.local import LocalBackend
from crucible.backends.registry import ROWS, BackendRow
from crucible.core.errors import UnknownName


@pytest.fixture
def settings(tmp_path: Path) -> BackendSettings:
    return BackendSettings(tmp_path, tmp_path / "agents.url", tmp_path / "agent.pyz", sys.executable)


def test_what_there_is() -> None:
    assert names() == ("local", "rehearsal")


@pytest.mark.parametrize("name", names())
def test_every_row_makes_the_backend_of_its_name(name: str, settings: BackendSettings) -> None:
    assert get_backend(name, settings).name == name
    assert ROWS[name].install.startswith("pip install ")


def test_each_call_makes_a_new_one(settings: BackendSettings) -> None:
    first = get_backend("local", settings)
    assert isinstance(first, LocalBackend)
    assert get_backend("local", settings) is not first


def test_a_near_miss_is_told(settings: BackendSettings) -> None:
    with pytest.raises(UnknownName, match=r"There is no backend 'locla'\. Did you mean 'local'\?"):
        get_backend("locla", settings)


def test_an_unknown_backend_is_told_what_there_is(settings: BackendSettings) -> None:
    with pytest.raises(UnknownName, match="Known: local"):
        get_backend("kubernetes", settings)


def test_a_missing_package_is_told_with_the_command(settings: BackendSettings) -> None:
    rows = {"moon": BackendRow("no_such_package.moon:MoonBackend", "pip install 'crucible-ml[moon]'")}
    assert names(rows) == ("moon",)
    with pytest.raises(NotInstalled) as caught:
        get_backend("moon", settings, rows)
    assert caught.value.what == "The backend 'moon' is not installed."
    assert "no_such_package" in caught.value.why
    assert caught.value.fix == "Run: pip install 'crucible-ml[moon]'"


def test_listing_the_names_imports_no_backend() -> None:
    code = "import crucible.backends, sys; print({'crucible.backends.local', 'psutil'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "set()\n"


def test_settings_do_not_print_the_environment(tmp_path: Path) -> None:
    settings = BackendSettings(tmp_path, tmp_path, tmp_path, "python3", environ={"TOKEN": "hunter2"})
    assert "hunter2" not in repr(settings)
