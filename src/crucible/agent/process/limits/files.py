"""The few file operations a cgroup needs, as an object, so that a test can bring its own kernel."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional

WALK_AT_MOST = 20000


class Files:
    def read(self, path: Path) -> str:
        """Empty when there is no such file or it cannot be read."""
        try:
            return path.read_text()
        except OSError:
            return ""

    def write(self, path: Path, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)

    def make(self, path: Path) -> None:
        """With its parent; fine when it is there."""
        for _ in range(3):
            with contextlib.suppress(FileNotFoundError):
                path.parent.mkdir(exist_ok=True)
                path.mkdir(exist_ok=True)
                return
            # The parent was removed as empty by another attempt's end, just now.
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def subtree(self, path: Path) -> list[Path]:
        """The folder and all below it, deepest first; empty when it is not there."""
        return [Path(folder) for folder, _, _ in os.walk(path, topdown=False)]

    def find(self, root: Path, name: tuple[str, str]) -> Optional[Path]:
        """The first folder below `root` that is called name[0]/name[1]."""
        for seen, (folder, below, _) in enumerate(os.walk(root)):
            if os.path.basename(folder) == name[0] and name[1] in below:
                return Path(folder, name[1])
            if seen > WALK_AT_MOST:
                return None
        return None


def number(text: str) -> int:
    """0 for a file that is missing or says something else."""
    text = text.strip()
    return int(text) if text.isdigit() else 0


def field(text: str, name: str) -> int:
    """`name 5` in a file of such lines; 0 when it is not there."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return number(value)
    return 0
