"""A Python with the nanoGPT template's requirements, built once and kept in the project's .cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uv import find_uv_bin

from crucible.agent.python.pip_settings import uv_variables
from crucible.templates import get

CACHE = Path(__file__).parents[2] / ".cache"
BUILD_SECONDS = 1200.0


def torch_python() -> Path:
    """uv installs it in a fraction of pip's time, from wherever pip would: torch may come from a local file."""
    requirements = get("nanogpt").folder / "requirements.txt"
    home = _home(f"torch-venv-{_key(requirements.read_bytes())}")
    python = home / "bin" / "python"
    with only_one(home) as missing:
        if missing:
            _run(sys.executable, "-m", "venv", str(home))
            _install(python, "-r", str(requirements))
            (home / ".complete").touch()
    return python


def tensorboard_path(python: Path) -> Path:
    """A folder for PYTHONPATH that adds tensorboard, so that tests can do with and without it."""
    home = _home(f"tensorboard-{_key(b'1')}")
    with only_one(home) as missing:
        if missing:
            _install(python, "--target", str(home), "tensorboard")
            (home / ".complete").touch()
    return home


@contextmanager
def only_one(home: Path) -> Iterator[bool]:
    """Holds the folder's lock; gives True, and an empty place, when the folder has to be made."""
    with open(home.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = (home / ".complete").exists()
        if not complete:
            shutil.rmtree(home, ignore_errors=True)
        yield not complete


def _home(name: str) -> Path:
    CACHE.mkdir(exist_ok=True)
    # git, and the tools that follow it, leave the folder alone.
    (CACHE / ".gitignore").write_text("*\n")
    return CACHE / name


def _key(content: bytes) -> str:
    return hashlib.sha256(sys.version.encode() + content).hexdigest()[:12]


def _install(python: Path, *what: str) -> None:
    """With uv, or with pip where uv finds no way to the packages; pip replaces what uv has left half done."""
    uv = (find_uv_bin(), "pip", "install", "--quiet", "--python", str(python), *what)
    if _done(*uv).returncode:
        _run(str(python), "-m", "pip", "install", "--quiet", "--no-input", "--upgrade", *what)


def _done(*command: str) -> subprocess.CompletedProcess[str]:
    env = {**uv_variables(os.environ), **os.environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, env=env)


def _run(*command: str) -> None:
    done = _done(*command)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


if __name__ == "__main__":
    tensorboard_path(torch_python())
