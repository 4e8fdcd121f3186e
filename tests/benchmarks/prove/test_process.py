"""A command is shown, kept in a log, and ended when its time is over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.prove.process import OUT_OF_TIME, perform

from benchmarks.prove import process

SLEEPS = "import sys, time; print('begun', flush=True); time.sleep(600)"


def run(code: str, folder: Path, *, at_most: float = 60.0) -> int:
    return perform([sys.executable, "-c", code], folder, folder / "log", at_most=at_most)


def test_its_output_is_shown_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr); sys.exit(7)", tmp_path)
    assert code == 7
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    assert capsys.readouterr().out == "out\nerr\n"


def test_it_works_in_the_folder(tmp_path: Path) -> None:
    assert run("open('here', 'w')", tmp_path) == 0
    assert (tmp_path / "here").exists()


def test_when_its_time_is_over_it_is_ended(tmp_path: Path) -> None:
    assert run(SLEEPS, tmp_path, at_most=0.5) == OUT_OF_TIME


def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.5)
    deaf = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLEEPS}"
    assert run(deaf, tmp_path, at_most=1.0) == OUT_OF_TIME


def test_a_child_that_holds_on_to_its_output_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LAST_OUTPUT", 0.2)
    start = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).pid, flush=True)"
    assert run(start, tmp_path) == 0
    child = (tmp_path / "log").read_text().split()[0]
    subprocess.run(["kill", "-9", child], check=True)
