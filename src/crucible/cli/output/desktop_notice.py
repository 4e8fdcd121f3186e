"""Notification at the end of a job: the terminal bell and a desktop message."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from crucible.core.views.jobs import JobView

SECONDS = 5.0
_RING = "\a"
_OSC, _END = "\x1b]9;", "\x07"
"""OSC 9: iTerm2, Windows Terminal, kitty, WezTerm and ConEmu show the text; others ignore it."""


def notify_desktop(job: JobView, environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Announce how a job ended. Never raises, so that the job's own exit code is returned."""
    text = format_notice(job)
    out = stream or sys.stderr
    if out.isatty():
        out.write(f"{_RING}{_OSC}{text}{_END}" if environ.get("TERM") != "dumb" else _RING)
        out.flush()
    command = desktop_command(text, environ)
    if command is not None:
        try:
            subprocess.run(command, timeout=SECONDS, check=False, capture_output=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return


def format_notice(job: JobView) -> str:
    """Return one line without control characters."""
    name = f" ({job.name})" if job.name else ""
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    text = f"Crucible: {job.display_name}{name} {job.status}{code}"
    return "".join(letter for letter in text if letter.isprintable())[:200]


def desktop_command(text: str, environ: Mapping[str, str]) -> Sequence[str] | None:
    """Return the command that shows a notice on this desktop, or None."""
    if sys.platform == "darwin" and (program := shutil.which("osascript", path=environ.get("PATH"))):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        return [program, "-e", f'display notification "{quoted}" with title "Crucible"']
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return None
    program = shutil.which("notify-send", path=environ.get("PATH"))
    return [program, "--app-name=Crucible", "--", "Crucible", text] if program else None
