"""The file operations that limiters use, as an object, so that tests can simulate a kernel."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional

MAX_FOLDERS = 20000


class Files:
    """The real file system."""

    def read(self, path: Path) -> str:
        """Return the content; empty if the file cannot be read. Names in it may be any bytes, as file names may."""
        try:
            return path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""

    def write(self, path: Path, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)

    def make(self, path: Path) -> None:
        """Make the folder and its parent, if they do not exist."""
        for _ in range(3):
            with contextlib.suppress(FileNotFoundError):
                path.parent.mkdir(exist_ok=True)
                path.mkdir(exist_ok=True)
                return
            # Another attempt has just ended and removed the empty parent: retry.
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def subtree(self, path: Path) -> list[Path]:
        """Return the folder and all below it, deepest first; empty if it does not exist."""
        return [Path(folder) for folder, _, _ in os.walk(path, topdown=False)]

    def find(self, root: Path, name: tuple[str, str]) -> Optional[Path]:
        """Return the first folder below `root` named name[0]/name[1]."""
        for count, (folder, below, _) in enumerate(os.walk(root)):
            if os.path.basename(folder) == name[0] and name[1] in below:
                return Path(folder, name[1])
            if count > MAX_FOLDERS:
                return None
        return None


def number(text: str) -> int:
    """Return the number in a file's text; 0 if the file is missing or holds no number."""
    text = text.strip()
    return int(text) if text.isdigit() else 0


def field(text: str, name: str) -> int:
    """Return the number of the line `name 5`; 0 if there is no such line."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return number(value)
    return 0
