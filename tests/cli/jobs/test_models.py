"""`crucible models`: what is listed, and what is said of a plugin that is broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.plugin_packages import COUNTER, install, make_python

WORDS = ["train,", "infer,", "benchmark", "counting", "1.0", "Counts."]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of ./.venv, which is the job's Python when nothing else is said."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return make_python(tmp_path / ".venv")


def test_models_are_listed_with_what_they_can_do(cli: Cli, site: Path) -> None:
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    ran = cli("models")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split() == ["counter", "1.2", *WORDS]
    assert cli("models", "list", "-q").out == "counter\n"
    assert "counting" not in sys.modules


def test_as_json_they_have_their_schema(cli: Cli, site: Path) -> None:
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    (item,) = cli("models", "--json").json["items"]
    assert item["schema"]["epochs"] == {
        "type": "int",
        "required": False,
        "default": 3,
        "minimum": 1,
        "maximum": 100,
        "help": "How far to count.",
    }
    assert item["error"] is None
    assert cli("models", "show", "counter", "--json").json == item


def test_one_is_shown_with_its_options(cli: Cli, site: Path) -> None:
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    out = cli("models", "show", "counter").out
    assert "epochs: int, 1 to 100, default 3. How far to count." in out
    assert 'mode: str, one of up, down, default "up"' in out
    assert "GPU memory  none needed" in out
    assert "counting 1.0 (counting:Counter)" in out


def test_a_broken_one_harms_no_other(cli: Cli, site: Path) -> None:
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    install(site, "sick", "raise RuntimeError('no luck')", {"sick": "sick:Model"})
    ran = cli("models")
    assert ran.code == 0
    assert "counter" in ran.out
    assert "broken: RuntimeError: no luck" in ran.out
    assert "Broken: sick. For the traceback: crucible models show sick" in ran.err
    ran = cli("models", "show", "sick")
    assert ran.code == 2
    assert "The model 'sick' cannot be used: RuntimeError: no luck." in ran.err
    assert "sick/__init__.py" in ran.err


def test_there_may_be_none(cli: Cli, site: Path) -> None:
    ran = cli("models")
    assert (ran.code, ran.out) == (0, "")
    assert "provides a model. docs/plugins.md shows how to write one." in ran.err
    assert cli("models", "show", "counter").code == 2


def test_another_python_is_named(cli: Cli, site: Path, tmp_path: Path) -> None:
    other = make_python(tmp_path / "other")
    install(other, "counting", COUNTER, {"counter": "counting:Counter"})
    assert cli("models", "-q").out == ""
    assert cli("models", "-q", "--python", "other/").out == "counter\n"
    ran = cli("models", "--python", "./nowhere")
    assert ran.code == 2
    assert "--python ./nowhere is not an executable." in ran.err
