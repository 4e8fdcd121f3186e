from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from crucible.cli.output.desktop_notice import desktop_command, format_notice, notify_desktop
from crucible.core.views.jobs import JobView

JOB = JobView(id="job-1", short="job-abc123", status="failed", phase="failed", name="mnist", exit_code=3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_said() -> None:
    assert format_notice(JOB) == "Crucible: job-abc123 (mnist) failed, exit code 3"
    assert format_notice(JOB.model_copy(update={"name": None, "exit_code": 0, "status": "completed"})).endswith(
        "completed"
    )


def test_a_name_is_text_and_nothing_else() -> None:
    hostile = JOB.model_copy(update={"name": "\x1b]0;evil\x07\x1b[2J\nx"})
    assert not any(ord(letter) < 32 for letter in format_notice(hostile))


def test_a_terminal_rings_and_shows_it() -> None:
    out = Terminal()
    notify_desktop(JOB, {"TERM": "xterm"}, out)
    assert out.getvalue() == f"\a\x1b]9;{format_notice(JOB)}\x07"


def test_a_dumb_one_only_rings_and_a_file_gets_nothing() -> None:
    dumb, file = Terminal(), io.StringIO()
    notify_desktop(JOB, {"TERM": "dumb"}, dumb)
    notify_desktop(JOB, {}, file)
    assert (dumb.getvalue(), file.getvalue()) == ("\a", "")


@pytest.mark.skipif(sys.platform != "linux", reason="the desktops of other systems are asked in other ways")
def test_a_desktop_is_told_by_its_own_program(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    program = tmp_path / "notify-send"
    program.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(said)!r}, 'w'))\n")
    program.chmod(0o755)
    notify_desktop(JOB, {"DISPLAY": ":0", "PATH": str(tmp_path)}, io.StringIO())
    assert json.loads(said.read_text()) == ["--app-name=Crucible", "--", "Crucible", format_notice(JOB)]


@pytest.mark.parametrize("environ", [{}, {"PATH": "/bin"}, {"DISPLAY": ":0", "PATH": "/nowhere"}])
def test_without_a_desktop_nobody_is_asked(environ: dict[str, str]) -> None:
    if sys.platform == "linux":
        assert desktop_command("x", environ) is None


def test_a_program_that_breaks_harms_nothing(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text("no program at all")
    program.chmod(0o755)
    notify_desktop(JOB, {"DISPLAY": ":0", "PATH": str(tmp_path)}, io.StringIO())
