"""A wall clock that a test sets for the processes started under it; the computer's clock is not changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("wallclock.c")


class WallClock:
    """`env` is the environment of these processes. Monotonic and boot-time clocks are not affected."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall-clock"
        self._library = _compiled(folder / "wallclock.so")
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Set the clock's offset from the computer's."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:.0f}\n")
        fresh.replace(self._file)

    @property
    def env(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK_FILE": str(self._file)}


def _compiled(library: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed (apt-get install gcc libc6-dev)")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True, timeout=120)
    return library
