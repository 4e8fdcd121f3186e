"""The agent's command line, as those call it that start hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import crucible
from crucible.agent.__main__ import main

UNUSED = {"argparse", "gettext", "platform"}
"""What a host can do without: every start of one would load it."""


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{crucible.__version__}\n"


@pytest.mark.parametrize(
    "words", [[], ["host"], ["host", "--bootstrap"], ["host", "a", "b"], ["runner"], ["version", "x"], ["--help"]]
)
def test_anything_else_is_answered_with_what_there_is(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == "usage: agent.pyz host --bootstrap FILE | runner FOLDER | version\n"


def test_a_bad_bootstrap_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "--bootstrap", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


def test_a_host_loads_nothing_that_it_does_not_use() -> None:
    code = "import json, sys; import crucible.agent.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not UNUSED & set(json.loads(done.stdout))
