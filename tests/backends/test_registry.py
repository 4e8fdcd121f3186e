from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crucible.backends import BackendContext, BackendSettings, get_backend, names
from crucible.backends.base import NotInstalled
from crucible.backends.bootstrap import AgentFile
from crucible.backends.local import LocalBackend
from crucible.backends.registry import ROWS, BackendRow, settings_model
from crucible.backends.settings import describe
from crucible.core.errors import UnknownName


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def context(name: str, home: Path) -> BackendContext[BackendSettings]:
    model = settings_model(name) if name in ROWS else BackendSettings
    settings = model.model_validate({each.name: "gpu1" for each in describe(name, model) if each.required})
    agent = AgentFile(home / "agent.pyz", "5" * 64)
    return BackendContext(settings, home, home / "agents.url", agent, sys.executable)


def test_what_there_is() -> None:
    assert names() == ("local", "rehearsal", "ssh")


@pytest.mark.parametrize("name", names())
def test_every_row_makes_the_backend_of_its_name(name: str, home: Path) -> None:
    assert get_backend(name, context(name, home)).name == name
    assert ROWS[name].install.startswith("pip install ")


def test_each_call_makes_a_new_one(home: Path) -> None:
    first = get_backend("local", context("local", home))
    assert isinstance(first, LocalBackend)
    assert get_backend("local", context("local", home)) is not first


def test_a_near_miss_is_told(home: Path) -> None:
    with pytest.raises(UnknownName, match=r"There is no backend 'locla'\. Did you mean 'local'\?"):
        get_backend("locla", context("locla", home))


def test_an_unknown_backend_is_told_what_there_is(home: Path) -> None:
    with pytest.raises(UnknownName, match="Known: local"):
        get_backend("kubernetes", context("kubernetes", home))


def test_a_missing_package_is_told_with_the_command(home: Path) -> None:
    rows = {"moon": BackendRow("no_such_package.moon:MoonBackend", "pip install 'crucible-ml[moon]'")}
    assert names(rows) == ("moon",)
    with pytest.raises(NotInstalled) as caught:
        get_backend("moon", context("moon", home), rows)
    assert caught.value.what == "The backend 'moon' is not installed."
    assert "no_such_package" in caught.value.why
    assert caught.value.fix == "Run: pip install 'crucible-ml[moon]'"


def test_listing_the_names_imports_no_backend() -> None:
    code = "import crucible.backends, sys; print({'crucible.backends.local', 'psutil'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "set()\n"


def test_settings_are_described_without_the_backends_package() -> None:
    rows = {"moon": BackendRow("no_such_package.moon:MoonBackend", "pip install 'crucible-ml[moon]'")}
    assert settings_model("moon", rows) is BackendSettings
    rows = {"moon": BackendRow("x:y", "pip install moon", "no_such_package.settings:MoonSettings")}
    with pytest.raises(NotInstalled, match="pip install moon"):
        settings_model("moon", rows)


def test_a_context_does_not_print_the_environment(tmp_path: Path) -> None:
    made = BackendContext(BackendSettings(), tmp_path, tmp_path, tmp_path, "python3", environ={"TOKEN": "hunter2"})
    assert "hunter2" not in repr(made)
