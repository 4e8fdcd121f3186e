"""Test the agent's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import crucible
from crucible.agent.__main__ import main


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{crucible.__version__}\n"


@pytest.mark.parametrize(
    "words", [[], ["host"], ["host", "--bootstrap"], ["host", "a", "b"], ["runner"], ["version", "x"], ["dance"]]
)
def test_anything_else_is_answered_with_what_there_is(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: agent.pyz")


def test_a_bad_bootstrap_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "--bootstrap", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err
