"""`crucible templates`, and running one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer


def test_they_are_listed(cli: Cli) -> None:
    ran = cli("templates")
    assert ran.out.splitlines()[1].startswith("nanogpt")
    assert "crucible run --template nanogpt" in ran.err
    assert cli("templates", "list", "-q").out == "nanogpt\n"
    assert cli("templates", "--json").json["items"][0]["requirements"][0].startswith("torch==")


def test_one_is_shown(cli: Cli) -> None:
    out = cli("templates", "show", "nanogpt").out
    assert "python train.py --preset cpu" in out
    assert "cpu-tiny" in out
    assert cli("templates", "show", "nanogpt", "--json").json["entry"] == "train.py"
    ran = cli("templates", "show", "nanogtp")
    assert (ran.code, "Did you mean 'nanogpt'" in ran.err) == (2, True)


def test_one_is_copied_and_never_over_something(cli: Cli, tmp_path: Path) -> None:
    ran = cli("templates", "copy", "nanogpt")
    assert (ran.code, (tmp_path / "nanogpt" / "train.py").is_file()) == (0, True)
    assert "crucible run nanogpt" in ran.err
    assert cli("templates", "copy", "nanogpt").code == 5
    found = cli("templates", "copy", "nanogpt", "mine", "--json").json
    assert found["folder"] == str(tmp_path / "mine")


@pytest.mark.enable_socket
def test_one_is_run_as_it_comes(cli: Cli, real: RealServer) -> None:
    assert cli("run", "--template", "nanogpt", "-d").code == 0
    spec = real.specs[0]
    assert spec["command"] == ["{python}", "train.py", "--preset", "cpu"]
    assert spec["name"] == "nanogpt"
    assert spec["source"]["path"].endswith("templates/nanogpt")
    assert any(item.startswith("torch==") for item in spec["environment"]["requirements"])
    assert len(real.bundles) == 1


@pytest.mark.enable_socket
def test_one_is_run_with_other_arguments_and_a_name(cli: Cli, real: RealServer) -> None:
    assert cli("run", "--template", "nanogpt", "--name", "tiny", "-d", "--", "--preset", "cpu-tiny").code == 0
    assert real.specs[0]["command"][2:] == ["--preset", "cpu-tiny"]
    assert real.specs[0]["name"] == "tiny"


def test_refusals(cli: Cli) -> None:
    assert cli("run", "--template", "nosuch").code == 2
    assert cli("run", "train.py", "--template", "nanogpt").code == 2
    ran = cli("run", "--template", "nanogpt", "--in-place")
    assert (ran.code, "crucible templates copy nanogpt" in ran.err) == (2, True)
