"""Asking an interpreter what it is, by running it once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.client.versions import Version

PROBE_SECONDS = 20.0

_ASK = "import sys; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable)"


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs. `executable` is the program itself, where `path` is a stand-in for it."""

    path: str
    version: Version
    executable: str


class NoInterpreter(Exception):
    """It does not run as a Python; the text is its own last word, or why it could not be asked."""


def probe(path: str, environ: Mapping[str, str], folder: Path) -> Interpreter:
    """What the program at `path` says of itself, run as the shell in `folder` would run it."""
    plain = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [path, "-c", _ASK],
            cwd=folder,
            env=plain,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoInterpreter(f"It did not answer within {PROBE_SECONDS:g} seconds.") from error
    except OSError as error:
        raise NoInterpreter(error.strerror or str(error)) from error
    version, _, executable = done.stdout.strip().partition("\n")
    numbers = version.split(".")
    if done.returncode or not all(number.isdigit() for number in numbers):
        raise NoInterpreter(done.stderr.strip() or f"It ended with code {done.returncode} and said nothing.")
    return Interpreter(path, tuple(map(int, numbers)), executable.strip() or path)


def is_shim(path: str) -> bool:
    """Whether it is a stand-in of a version manager (pyenv, asdf), which chooses anew in every folder."""
    return os.path.basename(os.path.dirname(path)) == "shims"
